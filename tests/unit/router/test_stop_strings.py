"""The scanner against a reference that sees the whole text at once."""

from hypothesis import given, settings
from hypothesis import strategies as st

from router.stop_strings import StopScanner

texts = st.text(alphabet="abc", max_size=30)
stop_lists = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4)


def reference(text: str, stops: list[str]) -> tuple[str, bool]:
    """Character by character: the first position where a stop string ends, cut at its start."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


def scan(pieces: list[str], stops: list[str]) -> tuple[list[str], bool]:
    scanner = StopScanner(stops)
    out: list[str] = []
    for piece in pieces:
        scanned = scanner.push(piece)
        out.append(scanned.text)
        if scanned.found:
            return out, True
    return [*out, scanner.flush()], False


@given(st.lists(texts, max_size=8), stop_lists)
@settings(max_examples=500, deadline=None)
def test_any_cut_gives_what_the_whole_text_gives(pieces: list[str], stops: list[str]) -> None:
    out, found = scan(pieces, stops)
    assert ("".join(out), found) == reference("".join(pieces), stops)


@given(texts, stop_lists)
@settings(max_examples=300, deadline=None)
def test_what_has_left_is_always_part_of_the_final_text(text: str, stops: list[str]) -> None:
    """No prefix of a stop string leaks: whatever is out stays right whatever follows."""
    expected, _ = reference(text, stops)
    sent = ""
    scanner = StopScanner(stops)
    for character in text:
        scanned = scanner.push(character)
        sent += scanned.text
        assert expected.startswith(sent)
        if scanned.found:
            assert sent == expected
            return


def test_only_what_may_become_a_stop_string_is_held() -> None:
    scanner = StopScanner(["END"])
    assert scanner.push("a E").text == "a "
    assert scanner.push("Ex").text == "EEx"
    assert scanner.push("EN").text == ""
    assert scanner.flush() == "EN"


def test_of_two_that_end_together_the_longer_wins() -> None:
    assert scan(["xabc"], ["bc", "abc"]) == (["x"], True)


def test_without_stop_strings_nothing_is_held() -> None:
    assert scan(["any", "thing"], []) == (["any", "thing", ""], False)
