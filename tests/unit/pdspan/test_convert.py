"""A GGUF file of known weights comes back as a checkpoint with those weights."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from pdspan.convert import convert


@pytest.fixture(scope="module")
def converted(tiny_model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("converted")
    convert(tiny_model.gguf, directory)
    return directory


def test_weights_are_the_originals_in_bf16(tiny_model, converted: Path) -> None:
    found = load_file(converted / "model.safetensors")
    assert found.keys() == tiny_model.weights.keys()
    for name, weight in tiny_model.weights.items():
        assert torch.equal(found[name], torch.from_numpy(weight).bfloat16()), name


def test_config_describes_the_model(converted: Path) -> None:
    config = json.loads((converted / "config.json").read_text())
    expected = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "eos_token_id": 2,
    }
    assert expected.items() <= config.items()


def test_generation_and_tokenizer_config(converted: Path) -> None:
    generation = json.loads((converted / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    tokenizer = json.loads((converted / "tokenizer_config.json").read_text())
    assert (tokenizer["bos_token"], tokenizer["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer["chat_template"].startswith("{% for m in messages %}")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("the the", ["the", "Ġthe"]),
        ("the 42", ["the", "Ġ", "4", "2"]),  # digits alone, the space too
        ("<|im_start|>the<|im_end|>", ["<|im_start|>", "the", "<|im_end|>"]),
    ],
)
def test_tokenizer_splits_merges_and_comes_back(
    converted: Path, text: str, tokens: list[str]
) -> None:
    tokenizer = Tokenizer.from_file(str(converted / "tokenizer.json"))
    encoding = tokenizer.encode(text)
    assert encoding.tokens == tokens
    assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == text


def test_untied_output_layer_is_kept(tiny_model, write_gguf, tmp_path: Path) -> None:
    head = np.ones_like(tiny_model.weights["model.embed_tokens.weight"])
    write_gguf(tmp_path / "untied.gguf", {**tiny_model.weights, "lm_head.weight": head})
    convert(tmp_path / "untied.gguf", tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is False
    assert torch.equal(
        load_file(tmp_path / "model.safetensors")["lm_head.weight"],
        torch.from_numpy(head).bfloat16(),
    )


def test_another_tokenizer_is_refused_by_name(tiny_model, write_gguf, tmp_path: Path) -> None:
    write_gguf(tmp_path / "other.gguf", tiny_model.weights, pre="qwen2")
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.pre is 'qwen2'; only 'smollm'"):
        convert(tmp_path / "other.gguf", tmp_path)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "empty.gguf", "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ValueError, match=r"no field 'tokenizer\.ggml\.model'"):
        convert(tmp_path / "empty.gguf", tmp_path)
