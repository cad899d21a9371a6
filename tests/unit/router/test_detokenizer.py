"""Pieces joined equal a whole decode, and no piece ends inside a character."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from router.detokenizer import Detokenizer, Vocabulary
from tiny_text import TOKENIZERS, byte_fallback_tokenizer, byte_level_tokenizer

VOCABULARIES = {name: Vocabulary(build()) for name, build in TOKENIZERS.items()}


def pieces_of(vocabulary: Vocabulary, token_ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(vocabulary)
    return [*map(detokenizer.push, token_ids), detokenizer.flush()]


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[int]]:
    """Any ids at all, and ids of real text, which has the long runs of multi-byte characters."""
    name = draw(st.sampled_from(sorted(VOCABULARIES)))
    tokenizer = VOCABULARIES[name].tokenizer
    size = tokenizer.get_vocab_size()
    parts = draw(
        st.lists(
            st.one_of(
                st.lists(st.integers(0, size - 1), max_size=12),
                st.text(max_size=12).map(lambda text: tokenizer.encode(text).ids),
            ),
            max_size=6,
        )
    )
    return name, [token for part in parts for token in part]


@given(cases())
@settings(max_examples=400, deadline=None)
def test_pieces_joined_equal_a_whole_decode(case: tuple[str, list[int]]) -> None:
    name, token_ids = case
    vocabulary = VOCABULARIES[name]
    whole = vocabulary.tokenizer.decode(token_ids, skip_special_tokens=True)
    assert "".join(pieces_of(vocabulary, token_ids)) == whole


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_valid_text_never_shows_a_replacement_character(text: str) -> None:
    text = text.replace("\ufffd", "")
    vocabulary = VOCABULARIES["byte_level"]
    token_ids = vocabulary.tokenizer.encode(text, add_special_tokens=False).ids
    pieces = pieces_of(vocabulary, token_ids)
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_leaves_with_its_last_byte() -> None:
    tokenizer = byte_level_tokenizer()
    by_byte = [_byte_id(tokenizer, byte) for byte in "a€".encode()]
    assert pieces_of(Vocabulary(tokenizer), by_byte) == ["a", "", "", "€", ""]


def test_an_unfinished_character_is_flushed_as_in_a_whole_decode() -> None:
    tokenizer = byte_level_tokenizer()
    by_byte = [_byte_id(tokenizer, byte) for byte in "a€".encode()[:3]]
    assert pieces_of(Vocabulary(tokenizer), by_byte) == ["a", "", "", "\ufffd"]


def test_special_tokens_are_skipped_and_other_added_tokens_are_text() -> None:
    tokenizer = byte_level_tokenizer()
    ids = tokenizer.encode("hi<|im_end|><think>there", add_special_tokens=False).ids
    assert "".join(pieces_of(Vocabulary(tokenizer), ids)) == "hi<think>there"


def test_byte_fallback_runs_are_held_until_they_end() -> None:
    tokenizer = byte_fallback_tokenizer()
    ids = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "€".encode()]
    ids.append(tokenizer.token_to_id("a"))
    assert pieces_of(Vocabulary(tokenizer), ids) == ["", "", "", "€a", ""]


@pytest.mark.parametrize("name", sorted(VOCABULARIES))
def test_the_window_stays_small(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    detokenizer = Detokenizer(vocabulary)
    token = vocabulary.tokenizer.token_to_id("a")
    lone_continuation = _byte_id(vocabulary.tokenizer, 0x80) if name == "byte_level" else token
    for _ in range(500):
        detokenizer.push(token)
        detokenizer.push(lone_continuation)
        assert len(detokenizer._window) <= 20


def _byte_id(tokenizer: Tokenizer, byte: int) -> int:
    """Byte-level vocabularies name a byte by a printable character."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(256) if value not in printable]
    name = chr(byte) if byte in printable else chr(256 + others.index(byte))
    token = tokenizer.token_to_id(name)
    assert token is not None
    return token
