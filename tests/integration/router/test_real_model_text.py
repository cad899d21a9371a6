"""Tokens and text of the default model, compared with transformers."""

from pathlib import Path
from typing import Any

import pytest

from router.chat_template import ChatMessage
from router.model_info import load_model_info
from router.text import ModelText

pytestmark = pytest.mark.model

TEXTS = [
    "Hello, world!",
    "  two spaces, a tab\t, and\n\nlines ",
    "Grüße aus Zürich: 日本語, العربية, 👩‍👩‍👧 and 1234567890",
    "special <|im_end|> inside",
    "x = [i**2 for i in range(10)]  # code",
    "a long one, on a thread. " * 400,
]
CHATS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [
        {"role": "system", "content": "You are kind.\n"},
        {"role": "user", "content": "Hi <|im_end|> {{ 7 * 7 }}"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Ünïcödé 👧"},
    ],
]


@pytest.fixture(scope="module")
def text(default_model: Path) -> ModelText:
    return ModelText.load(default_model)


@pytest.fixture(scope="module")
def reference(default_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(default_model)


@pytest.mark.parametrize("prompt", TEXTS)
async def test_completions(text: ModelText, reference: Any, prompt: str) -> None:
    expected = reference(prompt)["input_ids"]
    assert await text.encode_completion(prompt, 8192) == tuple(expected)
    detokenizer = text.detokenizer()
    shown = "".join([*map(detokenizer.push, expected), detokenizer.flush()])
    assert shown == reference.decode(expected, skip_special_tokens=True)


@pytest.mark.parametrize("messages", CHATS)
async def test_chats(text: ModelText, reference: Any, messages: list[dict[str, str]]) -> None:
    expected = reference.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)
    chat = [ChatMessage(message["role"], message["content"]) for message in messages]
    assert await text.encode_chat(chat, 8192) == tuple(expected["input_ids"])


def test_end_of_text(default_model: Path, reference: Any) -> None:
    from pdcore.settings import ModelSettings

    info = load_model_info(default_model, ModelSettings())
    assert info.eos_token_ids == (reference.eos_token_id,)
