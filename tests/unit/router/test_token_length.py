"""What is refused by its length would not have fitted, whatever the text and the tokenizer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from router.token_length import NFC_CHARS, TokenLength, token_length
from tiny_text import BOS, TOKENIZERS, byte_fallback_tokenizer, byte_level_tokenizer


def without_some_bytes() -> Tokenizer:
    """As SmolLM2's: control characters, and first bytes of rare characters, have no token."""
    lacking = {"ē", "Ā", "ò", "õ"}
    vocabulary = sorted(byte_level_tokenizer().get_vocab(with_added_tokens=False))
    kept = [token for token in vocabulary if len(token) == 1 and token not in lacking]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(kept)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def composing() -> Tokenizer:
    tokenizer = byte_level_tokenizer()
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


KINDS = {**TOKENIZERS, "lacking": without_some_bytes, "composing": composing}
PIECES = [
    "the",
    "the the",
    " ",
    "é",
    "日本",
    "👩‍👩‍👧",
    "\x00",
    "\x13",
    "\U000a0000",
    BOS,
    "\u03b1\u0313\u0300\u0345",
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=40).map("".join)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_never_has_fewer_tokens_than_said(kind: str) -> None:
    tokenizer = KINDS[kind]()
    length = token_length(tokenizer)
    assert length is not None

    @given(TEXTS)
    def check(text: str) -> None:
        ids = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        assert length.fewest_tokens(text) <= len(ids)
        assert ids == tokenizer.encode(text, add_special_tokens=False).ids

    check()


def test_it_grows_with_the_text() -> None:
    longest = max(map(len, byte_level_tokenizer().get_vocab()))
    assert token_length(byte_level_tokenizer()) == TokenLength(longest)
    assert token_length(composing()) == TokenLength(longest * NFC_CHARS)
    assert token_length(byte_fallback_tokenizer()) == TokenLength(6)
    assert TokenLength(6).fewest_tokens("x" * 13) == 3


def test_characters_without_a_token_do_not_count() -> None:
    length = token_length(without_some_bytes())
    assert length == TokenLength(1, "\x00\x13")
    assert length.fewest_tokens("a\x13\x00\x13") == 1


def test_tokenizers_that_lose_text_have_no_length() -> None:
    stripping, splitting, swallowing, partial = (byte_level_tokenizer() for _ in range(4))
    stripping.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])
    splitting.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel()]
    )
    swallowing.add_tokens([AddedToken("<mask>", lstrip=True)])
    partial.pre_tokenizer = None
    words = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    for tokenizer in (stripping, splitting, swallowing, partial, words):
        assert token_length(tokenizer) is None


def test_a_replacement_that_shortens_has_no_length() -> None:
    tokenizer = byte_fallback_tokenizer()
    tokenizer.normalizer = normalizers.Replace("  ", " ")
    assert token_length(tokenizer) is None
