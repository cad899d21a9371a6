"""Turns one choice's tokens into text, piece by piece.

Invariant: the pieces joined, ``flush`` included, equal ``Tokenizer.decode`` of all tokens with
special tokens skipped; a piece never ends inside a character. Two families of tokenizers need care:
byte-level ones show the bytes of an unfinished character as one U+FFFD at the very end, and
byte-fallback ones (``<0xE2>``) decide over a whole run of byte tokens whether it is text at all.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

_REPLACEMENT = "\ufffd"
_WINDOW_TOKENS = 16  # decode at most about so many tokens again for each new one
_KEEP_TOKENS = 8  # and keep so many: an unfinished character has at most 3 bytes before its end


class Vocabulary:
    """What detokenisation needs of a tokenizer, computed once and shared by all requests."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        added = tokenizer.get_added_tokens_decoder()
        self.tokenizer = tokenizer
        self.special_ids = frozenset(token for token, entry in added.items() if entry.special)
        self.fallback_ids = _fallback_ids(tokenizer)


class Detokenizer:
    """State of one choice. A few tokens are decoded again with each new one, never all."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._window: list[int] = []
        self._num_sent = 0  # characters of the decoded window that have left

    def push(self, token_id: int) -> str:
        """The text that is certain now; often, but not always, this token's."""
        if token_id in self._vocabulary.special_ids:
            return ""
        self._window.append(token_id)
        if token_id in self._vocabulary.fallback_ids:
            return ""  # the run of byte tokens goes on
        text = self._decode(self._window)
        piece = self._send(text, self._certain_length(text))
        if len(self._window) > _WINDOW_TOKENS:
            self._slide()
        return piece

    def flush(self) -> str:
        """No token follows: an unfinished character leaves as U+FFFD, as in a whole decode."""
        text = self._decode(self._window)
        return self._send(text, len(text))

    def _send(self, text: str, end: int) -> str:
        piece = text[self._num_sent : end]
        self._num_sent = max(self._num_sent, end)
        return piece

    def _certain_length(self, text: str) -> int:
        unfinished = not self._vocabulary.fallback_ids and text.endswith(_REPLACEMENT)
        return len(text) - unfinished

    def _slide(self) -> None:
        """Keep the last tokens only. A character that the cut breaks has left already."""
        self._window = self._window[-_KEEP_TOKENS:]
        self._num_sent = self._certain_length(self._decode(self._window))

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._vocabulary.tokenizer.decode(token_ids, skip_special_tokens=False)


def _fallback_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Ids of ``<0x00>`` .. ``<0xFF>`` where the decoder treats them as bytes."""
    if "ByteFallback" not in str(tokenizer.decoder):
        return frozenset()
    found = (tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
    return frozenset(token for token in found if token is not None)
