"""Tokens in, text out: stop strings across token borders, min_tokens, and exact usage."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdcore.errors import InternalError
from pdcore.generation import FinishReason, TokenDelta, Usage
from router.answer import Answer, TextDelta
from tiny_text import tiny_text

TEXT = tiny_text()
TOKENIZER = TEXT._tokenizer


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text, add_special_tokens=False).ids)


def cut(text: str, stops: list[str]) -> tuple[str, bool]:
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


@st.composite
def generations(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int], list[str]]:
    """Token ids, where they are cut into deltas, and stop strings that often occur in the text."""
    text = draw(st.text(alphabet="ab é€👧", min_size=1, max_size=30))
    token_ids = ids(text)
    borders = draw(st.lists(st.integers(0, len(token_ids)), max_size=6))
    stops = draw(st.lists(st.text(alphabet="ab é€👧", min_size=1, max_size=4), max_size=3))
    return token_ids, sorted({0, len(token_ids), *borders}), stops


@given(generations(), st.sampled_from(list(FinishReason)))
@settings(max_examples=300, deadline=None)
def test_text_is_the_whole_text_cut_at_the_first_stop(
    generation: tuple[tuple[int, ...], list[int], list[str]], reason: FinishReason
) -> None:
    token_ids, borders, stops = generation
    answer = Answer(TEXT, 1, stops)
    got: list[TextDelta] = []
    for start, end in itertools.pairwise(borders):
        last = reason if end == len(token_ids) else None
        delta = answer.push(TokenDelta(0, token_ids[start:end], last))
        got += [delta] if delta else []
    expected, found = cut(TOKENIZER.decode(token_ids), stops)
    assert "".join(delta.text for delta in got) == expected
    assert [delta.finish_reason for delta in got[:-1]] == [None] * (len(got) - 1)
    assert got[-1].finish_reason is (FinishReason.STOP if found else reason)


@given(generations(), st.integers(0, 12))
@settings(max_examples=200, deadline=None)
def test_before_min_tokens_no_stop_string_is_looked_for(
    generation: tuple[tuple[int, ...], list[int], list[str]], min_tokens: int
) -> None:
    token_ids, _, stops = generation
    first, then = token_ids[:min_tokens], token_ids[min_tokens:]
    answer = Answer(TEXT, 1, stops, min_tokens)
    head = "".join(delta.text for token in first if (delta := answer.push(TokenDelta(0, (token,)))))
    tail = answer.push(TokenDelta(0, then, FinishReason.LENGTH))
    assert tail is not None
    rest = TOKENIZER.decode(token_ids)[len(head) :]
    searched = cut(rest, stops)[0] if len(token_ids) > min_tokens else rest
    assert head + tail.text == head + searched


def test_a_stop_string_ends_a_choice_and_later_tokens_are_dropped() -> None:
    answer = Answer(TEXT, 1, ["lo w"])
    first = answer.push(TokenDelta(0, ids("hello world, this is")))
    assert first is not None and (first.text, first.finish_reason) == ("hel", FinishReason.STOP)
    shown = TOKENIZER.decode(first.token_ids)
    assert "lo w" in shown and shown in "hello world", "the tokens up to the stop string's end"
    assert answer.push(TokenDelta(0, ids("more"), FinishReason.LENGTH)) is None


def test_usage_counts_up_to_the_stop_string_not_what_was_computed_beyond() -> None:
    answer = Answer(TEXT, 1, ["b"])
    answer.push(TokenDelta(0, ids("a") + ids("b") + ids("c") + ids("d")))
    assert answer.usage(Usage(7, 9, 3)) == Usage(7, 2, 3)


def test_a_stop_token_is_counted_but_not_shown() -> None:
    answer = Answer(TEXT, 1)
    delta = answer.push(TokenDelta(0, ids("a"), FinishReason.STOP))
    assert delta == TextDelta(0, "a", FinishReason.STOP, ids("a"))
    assert answer.usage(Usage(1, 2)) == Usage(1, 2)


def test_end_of_text_as_the_first_token_is_an_empty_answer() -> None:
    answer = Answer(TEXT, 1)
    assert answer.push(TokenDelta(0, (), FinishReason.STOP)) == TextDelta(0, "", FinishReason.STOP)
    assert answer.usage(Usage(5, 1)).completion_tokens == 1


def test_choices_do_not_mix() -> None:
    answer = Answer(TEXT, 2, ["x"])
    assert answer.push(TokenDelta(1, ids("hello"))) == TextDelta(1, "hello", None, ids("hello"))
    stopped = answer.push(TokenDelta(0, ids("axb")))
    assert stopped is not None and stopped.text == "a"
    assert answer.push(TokenDelta(1, (), FinishReason.STOP)) is not None


def test_an_unfinished_choice_is_no_answer() -> None:
    answer = Answer(TEXT, 2)
    answer.push(TokenDelta(0, ids("a"), FinishReason.LENGTH))
    with pytest.raises(InternalError, match=r"choices \[1\] unfinished"):
        answer.usage(Usage(1, 1))


@pytest.mark.parametrize("counted", [1, 3])
def test_lost_or_invented_tokens_are_no_answer(counted: int) -> None:
    answer = Answer(TEXT, 1)
    answer.push(TokenDelta(0, ids("a") + ids("b"), FinishReason.LENGTH))
    with pytest.raises(InternalError, match=f"counted {counted} tokens, 2 arrived"):
        answer.usage(Usage(1, counted))


def test_tokens_of_a_choice_that_nobody_asked_for() -> None:
    with pytest.raises(InternalError, match="tokens of choice 1"):
        Answer(TEXT, 1).push(TokenDelta(1, ids("a")))
