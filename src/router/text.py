"""Text on one side, token ids on the other: tokenizer, chat template, and the way back.

Tokens are those of transformers: a completion's text gets the tokenizer's special tokens, a
rendered chat does not, since its template wrote them. Long text is rendered and encoded on a
thread, so the event loop goes on; text that cannot fit is not encoded at all.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tokenizers import Tokenizer

from pdcore.errors import ConfigError, InvalidRequest, PromptTooLong
from router.chat_template import ChatMessage, ChatTemplate, load_chat_template
from router.detokenizer import Detokenizer, Vocabulary
from router.model_info import read_json
from router.off_loop import off_loop
from router.token_length import token_length

TokenIds = tuple[int, ...]


class ModelText:
    """One model's tokenizer and chat template. Immutable; shared by all requests."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None = None) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._template = template
        self._vocabulary = Vocabulary(tokenizer)
        self._token_length = token_length(tokenizer)

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

    async def encode_completion(self, text: str, max_tokens: int) -> TokenIds:
        """Raises PromptTooLong where ``text`` is so long that it must have more than
        ``max_tokens``; text that passes may still have too many."""
        return await off_loop(
            len(text), lambda: self._encode(text, max_tokens, "prompt", add_special_tokens=True)
        )

    async def encode_chat(self, messages: Sequence[ChatMessage], max_tokens: int) -> TokenIds:
        """Raises InvalidRequest without a chat template, or when it refuses ``messages``, and
        PromptTooLong as for a completion."""
        template = self._template
        if template is None:
            raise InvalidRequest(
                "this model has no chat template; use /v1/completions", param="messages"
            )

        def encode() -> TokenIds:
            text = template.render(messages)
            return self._encode(text, max_tokens, "messages", add_special_tokens=False)

        size = sum(len(message.role) + len(message.content) for message in messages)
        return await off_loop(size, encode)

    def detokenizer(self) -> Detokenizer:
        return Detokenizer(self._vocabulary)

    def _encode(
        self, text: str, max_tokens: int, field: str, *, add_special_tokens: bool
    ) -> TokenIds:
        if self._token_length is not None:
            fewest = self._token_length.fewest_tokens(text)
            if fewest > max_tokens:
                raise PromptTooLong(
                    f"the prompt has {len(text)} characters, so at least {fewest} tokens; this"
                    f" model's context holds {max_tokens} tokens, prompt and answer together",
                    param=field,
                )
        # ``encode`` keeps the interpreter lock, a batch (of one) gives it up.
        batch = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return tuple(batch[0].ids)
