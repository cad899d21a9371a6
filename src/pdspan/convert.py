"""A GGUF file becomes a Hugging Face style model directory: ``python -m pdspan.convert GGUF DIR``.

A program of its own, run once per model in a subprocess, so that no serving process ever imports
the ``gguf`` package (extra ``convert``). It understands what the default model needs, the ``llama``
architecture with a SmolLM byte-level BPE tokenizer, and refuses everything else by name. It writes
plain files and is not atomic: ``pdspan.fetch`` gives it a directory that nobody reads yet.
Progress goes to stdout as one JSON object a line.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors import TensorSpec, serialize_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL_TOKEN = 3  # gguf.TokenType.CONTROL

GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


def convert(source: Path, target: Path) -> None:
    """Write config, tokenizer and bf16 weights of ``source`` into the directory ``target``.

    Raises ValueError for an architecture, tokenizer or tensor that is not understood.
    """
    reader = gguf.GGUFReader(source)
    _check_supported(reader)
    _report(0.0)
    _write_json(target / "config.json", _config(reader))
    _write_json(target / "generation_config.json", _special_ids(reader))
    _write_json(target / "tokenizer_config.json", _tokenizer_config(reader))
    _tokenizer(reader).save(str(target / "tokenizer.json"))
    _save(dict(_weights(reader)), target / "model.safetensors")


def _check_supported(reader: gguf.GGUFReader) -> None:
    expected = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
    }
    for name, value in expected.items():
        if (found := _field(reader, name)) != value:
            raise ValueError(f"{name} is {found!r}; only {value!r} can be converted")


def _config(reader: gguf.GGUFReader) -> dict[str, Any]:
    hidden_size = _field(reader, "llama.embedding_length")
    num_heads = _field(reader, "llama.attention.head_count")
    # Stored as float32: 1e-05 comes back as 9.999999747378752e-06.
    epsilon = np.float32(_field(reader, "llama.attention.layer_norm_rms_epsilon"))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **_special_ids(reader),
        "attention_bias": False,
        "head_dim": hidden_size // num_heads,
        "hidden_act": "silu",
        "hidden_size": hidden_size,
        "intermediate_size": _field(reader, "llama.feed_forward_length"),
        "max_position_embeddings": _field(reader, "llama.context_length"),
        "mlp_bias": False,
        "num_attention_heads": num_heads,
        "num_hidden_layers": _field(reader, "llama.block_count"),
        "num_key_value_heads": _field(reader, "llama.attention.head_count_kv"),
        "rms_norm_eps": float(str(epsilon)),
        "rope_scaling": None,
        "rope_theta": _field(reader, "llama.rope.freq_base"),
        "tie_word_embeddings": not any(t.name == "output.weight" for t in reader.tensors),
        "torch_dtype": "bfloat16",
        "vocab_size": _field(reader, "llama.vocab_size"),
    }


def _special_ids(reader: gguf.GGUFReader) -> dict[str, int]:
    return {
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _field(reader, "tokenizer.ggml.padding_token_id"),
    }


def _tokenizer_config(reader: gguf.GGUFReader) -> dict[str, Any]:
    tokens = _field(reader, "tokenizer.ggml.tokens")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[_field(reader, "tokenizer.ggml.bos_token_id")],
        "eos_token": tokens[_field(reader, "tokenizer.ggml.eos_token_id")],
        "pad_token": tokens[_field(reader, "tokenizer.ggml.padding_token_id")],
        "unk_token": tokens[_field(reader, "tokenizer.ggml.unknown_token_id")],
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": _field(reader, "llama.context_length"),
        "chat_template": _field(reader, "tokenizer.chat_template"),
    }


def _tokenizer(reader: gguf.GGUFReader) -> Tokenizer:
    """Byte-level BPE. ``smollm`` means: every digit alone, then GPT-2's split. Nothing is added."""
    tokens = _field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in _field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = _field(reader, "tokenizer.ggml.token_type")
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == CONTROL_TOKEN
        ]
    )
    return tokenizer


def _weights(reader: gguf.GGUFReader) -> Iterator[tuple[str, np.ndarray]]:
    """Names as in a checkpoint; values bf16, as their bits."""
    heads = {
        "attn_q.weight": _field(reader, "llama.attention.head_count"),
        "attn_k.weight": _field(reader, "llama.attention.head_count_kv"),
    }
    for done, tensor in enumerate(reader.tensors, start=1):
        weight = gguf.dequantize(tensor.data, tensor.tensor_type)  # float32 [rows, columns]
        name, part = _hugging_face_name(tensor.name)
        if part in heads:
            weight = _halves(weight, heads[part])
        yield name, _bfloat16(weight)
        _report(done / len(reader.tensors))


def _hugging_face_name(name: str) -> tuple[str, str]:
    """The tensor's name in a checkpoint, and the part of a layer that it is ("" outside layers)."""
    if name in GLOBAL_NAMES:
        return GLOBAL_NAMES[name], ""
    _, layer, part = name.split(".", 2) if name.startswith("blk.") else ("", "", "")
    if part not in LAYER_NAMES:
        raise ValueError(f"unknown tensor {name!r}")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}", part


def _halves(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of each head from GGUF's rotation order (x0 y0 x1 y1 ...) to (x0 x1 ... y0 y1 ...)."""
    rows, columns = weight.shape
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _save(weights: Mapping[str, np.ndarray], path: Path) -> None:
    specs = {
        name: TensorSpec(
            dtype="bfloat16", shape=bits.shape, data_ptr=bits.ctypes.data, data_len=bits.nbytes
        )
        for name, bits in weights.items()
    }
    serialize_file(specs, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors leaves it readable by its owner alone


def _bfloat16(weight: np.ndarray) -> np.ndarray:
    """float32 as the bits of bfloat16, rounded to nearest, ties to even (weights are finite)."""
    bits = np.ascontiguousarray(weight, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _field(reader: gguf.GGUFReader, name: str) -> Any:
    field = reader.get_field(name)
    if field is None:
        raise ValueError(f"the file has no field {name!r}")
    return field.contents()


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _report(fraction: float) -> None:
    print(json.dumps({"event": "convert", "fraction": round(fraction, 4)}), flush=True)


if __name__ == "__main__":
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except ValueError as error:
        raise SystemExit(str(error)) from None
