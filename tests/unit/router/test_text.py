"""Which special tokens go where, and a model directory that is not one."""

import asyncio
from pathlib import Path

import pytest
from tokenizers.processors import TemplateProcessing

from pdcore.errors import ConfigError, InvalidRequest, PromptTooLong
from router.chat_template import ChatMessage
from router.off_loop import INLINE_SIZE
from router.text import ModelText
from tiny_text import BOS, byte_level_tokenizer, tiny_text


def with_bos() -> ModelText:
    tokenizer = byte_level_tokenizer()
    bos = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = TemplateProcessing(f"{BOS} $A", special_tokens=[(BOS, bos)])
    return ModelText(tokenizer, tiny_text()._template)


async def test_a_completion_gets_the_tokenizers_special_tokens() -> None:
    text = with_bos()
    token_ids = await text.encode_completion("hello", 100)
    assert token_ids[0] == byte_level_tokenizer().token_to_id(BOS)
    assert text._tokenizer.decode(token_ids) == "hello"


async def test_a_chat_has_only_those_of_its_template() -> None:
    text = with_bos()
    token_ids = await text.encode_chat([ChatMessage("user", "hi")], 100)
    bos = byte_level_tokenizer().token_to_id(BOS)
    assert token_ids.count(bos) == 2  # the user's turn and the assistant's
    shown = text._tokenizer.decode(token_ids, skip_special_tokens=False)
    assert shown == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


async def test_long_text_gives_the_same_tokens() -> None:
    text = tiny_text()
    long = "hello world, " * (INLINE_SIZE // 10)
    assert await text.encode_completion(long, 10**6) == tuple(text._tokenizer.encode(long).ids)


async def test_long_text_lets_other_threads_run() -> None:
    """``Tokenizer.encode`` would keep the interpreter's lock until it is done."""
    text = tiny_text()
    moments = 0
    async with asyncio.TaskGroup() as group:
        encoding = group.create_task(text.encode_completion("hello world, " * 40_000, 10**6))
        while not encoding.done():
            await asyncio.sleep(0)
            moments += 1
    assert moments > 100


async def test_text_that_cannot_fit_is_not_encoded() -> None:
    text = tiny_text()
    longest = max(map(len, text._tokenizer.get_vocab()))
    text._tokenizer = None  # whoever encodes fails
    expected = f"{longest * 7 + 1} characters, so at least 8 tokens; .* holds 7 tokens"
    with pytest.raises(PromptTooLong, match=expected) as caught:
        await text.encode_completion("x" * (longest * 7 + 1), 7)
    assert caught.value.param == "prompt"
    with pytest.raises(PromptTooLong, match="context holds 7 tokens") as caught:
        await text.encode_chat([ChatMessage("user", "x" * longest * 7)], 7)
    assert caught.value.param == "messages"


async def test_truncation_and_padding_of_the_file_are_off() -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=64)
    assert len(await ModelText(tokenizer).encode_completion("a b c d e f", 100)) == 11


async def test_a_model_without_a_template_has_no_chat() -> None:
    with pytest.raises(InvalidRequest, match="use /v1/completions"):
        await tiny_text(template=False).encode_chat([ChatMessage("user", "hi")], 100)


def test_the_highest_token_id_counts_added_tokens() -> None:
    tokenizer = byte_level_tokenizer()
    assert ModelText(tokenizer).highest_token_id == tokenizer.token_to_id("<think>")


def test_load(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json"):
        ModelText.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a tokenizer"):
        ModelText.load(tmp_path)
    byte_level_tokenizer().save(str(tmp_path / "tokenizer.json"))
    assert ModelText.load(tmp_path).detokenizer().push(30) != ""


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"model": {"type": "None"}}'])
def test_a_tokenizer_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"tokenizer\.json: not a tokenizer: "):
        ModelText.load(tmp_path)


@pytest.mark.parametrize("content", [b"[]", b"\xff", b"[" * 100_000, b'{"chat_template": 5}'])
def test_a_tokenizer_config_that_is_none(tmp_path: Path, content: bytes) -> None:
    byte_level_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"tokenizer_config\.json: "):
        ModelText.load(tmp_path)


def test_a_tokenizer_that_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(ConfigError, match="not a tokenizer"):
        ModelText.load(tmp_path)
