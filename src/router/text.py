"""Text on one side, token ids on the other: tokenizer, chat template, and the way back.

Tokens are those of transformers: a completion's text gets the tokenizer's special tokens, a
rendered chat does not, since its template wrote them. Long text is encoded on a thread, so the
event loop goes on (the tokenizer releases the interpreter lock).
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer

from pdcore.errors import ConfigError, InvalidRequest
from router.chat_template import ChatMessage, ChatTemplate, load_chat_template
from router.detokenizer import Detokenizer, Vocabulary
from router.model_info import read_json

INLINE_CHARS = 4096  # shorter text is encoded at once: a thread would cost more than it saves

TokenIds = tuple[int, ...]


class ModelText:
    """One model's tokenizer and chat template. Immutable; shared by all requests."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None = None) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._template = template
        self._vocabulary = Vocabulary(tokenizer)

    @property
    def highest_token_id(self) -> int:
        """Of all that text can become, added tokens included."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=0)

    @classmethod
    def load(cls, model_dir: Path) -> Self:
        """Raises ConfigError when the directory has no usable tokenizer."""
        path = model_dir / "tokenizer.json"
        if not path.exists():
            raise ConfigError(f"{model_dir} has no tokenizer.json")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises nothing narrower
            raise ConfigError(f"{path}: not a tokenizer: {error}") from None
        config_path = model_dir / "tokenizer_config.json"
        config = read_json(config_path) if config_path.exists() else {}
        return cls(tokenizer, load_chat_template(model_dir, config))

    async def encode_completion(self, text: str) -> TokenIds:
        return await self._encode(text, add_special_tokens=True)

    async def encode_chat(self, messages: Sequence[ChatMessage]) -> TokenIds:
        """Raises InvalidRequest without a chat template, or when it refuses ``messages``."""
        if self._template is None:
            raise InvalidRequest(
                "this model has no chat template; use /v1/completions", param="messages"
            )
        return await self._encode(self._template.render(messages), add_special_tokens=False)

    def detokenizer(self) -> Detokenizer:
        return Detokenizer(self._vocabulary)

    async def _encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        def encode() -> TokenIds:
            return tuple(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

        return encode() if len(text) <= INLINE_CHARS else await asyncio.to_thread(encode)
