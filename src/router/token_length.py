"""How many tokens a text has at least, told from its length: what cannot fit is refused by that.

Invariant: ``fewest_tokens(text)`` is never more than the tokenizer makes of ``text``. Where that
cannot be known (parts of the tokenizer drop or contract text, or one token stands for any number of
unknown characters) ``token_length`` is None, and nothing is refused before it is encoded.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE

# At most so many characters become one by canonical composition: no character's canonical
# decomposition is longer (UAX #15, and the Unicode FAQ on normalization).
NFC_CHARS = 4

Part = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TokenLength:
    """``longest``: characters of text that one token stands for at most, but for those in
    ``silent``, which have no token and leave nothing behind."""

    longest: int
    silent: str = ""

    def fewest_tokens(self, text: str) -> int:
        num_silent = sum(map(text.count, self.silent))
        return -(-(len(text) - num_silent) // self.longest)


def token_length(tokenizer: Tokenizer) -> TokenLength | None:
    """None where a text's length says nothing of how many tokens it has."""
    normalizers = list(_parts(tokenizer.normalizer, "normalizers"))
    pre_tokenizers = list(_parts(tokenizer.pre_tokenizer, "pretokenizers"))
    added = tokenizer.get_added_tokens_decoder().values()
    silent = _silent(tokenizer, pre_tokenizers)
    keeps_text = (
        all(_keeps_length(part) for part in normalizers)
        and all(_keeps_text(part) for part in pre_tokenizers)
        and not any(token.lstrip or token.rstrip for token in added)  # they swallow spaces
    )
    if silent is None or not keeps_text:
        return None
    # A byte-level token has one character per byte, so at least one per character of its text.
    longest = max(map(len, tokenizer.get_vocab(with_added_tokens=True)), default=1)
    composes = any(part["type"] == "NFC" for part in normalizers)
    return TokenLength(longest * (NFC_CHARS if composes else 1), silent)


def _parts(component: Any, key: str) -> Iterator[Part]:
    """The steps of a normalizer or pre-tokenizer, as tokenizer.json describes them."""
    if component is None:
        return
    pending: list[Part] = [json.loads(component.__getstate__())]
    while pending:
        part = pending.pop()
        if part["type"] == "Sequence":
            pending += part[key]
        else:
            yield part


def _keeps_length(normalizer: Part) -> bool:
    """Whether text does not get shorter, but for ``NFC_CHARS``."""
    if normalizer["type"] == "Replace":
        pattern = normalizer["pattern"].get("String")
        return pattern is not None and len(pattern) <= len(normalizer["content"])
    return normalizer["type"] in ("NFC", "Prepend")


def _keeps_text(pre_tokenizer: Part) -> bool:
    kept = pre_tokenizer["type"] in ("ByteLevel", "Digits", "Metaspace", "Split", "Punctuation")
    return kept and pre_tokenizer.get("behavior") != "Removed"


def _silent(tokenizer: Tokenizer, pre_tokenizers: list[Part]) -> str | None:
    """The characters that have no token, all of them ASCII; None where others may have none.

    Byte-level vocabularies may lack bytes: first ones of long characters, which leave their other
    bytes behind, and control characters.
    """
    if not isinstance(tokenizer.model, BPE):
        return None
    if any(part["type"] == "ByteLevel" for part in pre_tokenizers):
        letters = _byte_letters()
    elif tokenizer.model.byte_fallback:
        letters = [f"<0x{byte:02X}>" for byte in range(256)]
    else:
        return None
    missing = [byte for byte in range(256) if tokenizer.token_to_id(letters[byte]) is None]
    if any(0x80 <= byte < 0xC0 for byte in missing):
        return None
    return "".join(chr(byte) for byte in missing if byte < 0x80)


def _byte_letters() -> list[str]:
    """GPT-2's letter for each byte: itself if it is visible in Latin-1, else the next from 256."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]
