"""Small tokenizers of the two families that detokenisation must tell apart, built in memory."""

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from router.chat_template import ChatTemplate, load_chat_template
from router.text import ModelText

BOS, EOS = "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for message in messages %}"
    "{{ bos_token + message['role'] + '\n' + message['content'] + eos_token + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token + 'assistant\n' }}{% endif %}"
)
TOKENIZER_CONFIG = {"bos_token": BOS, "eos_token": {"content": EOS}, "chat_template": CHATML}
_CORPUS = ["hello world, this is the capital of France", "grüße 日本語 👩‍👩‍👧 the the the"] * 20


def byte_level_tokenizer() -> Tokenizer:
    """As GPT-2's: every byte has a token, so a character may be spread over several."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[BOS, EOS],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return tokenizer


def byte_fallback_tokenizer() -> Tokenizer:
    """As Llama 2's: characters that have no token are spelled ``<0xE2><0x82><0xAC>``."""
    words = ["<s>", "</s>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words += ["\u2581", "\u2581the", "a", "b", "c", "\u2581a", "!", "é"]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken("<s>"), AddedToken("</s>")])
    return tokenizer


TOKENIZERS = {"byte_level": byte_level_tokenizer, "byte_fallback": byte_fallback_tokenizer}


def tiny_text(template: bool = True) -> ModelText:
    return ModelText(byte_level_tokenizer(), chatml() if template else None)


def chatml() -> ChatTemplate:
    from pathlib import Path

    template = load_chat_template(Path(), TOKENIZER_CONFIG)
    assert template is not None
    return template
