"""A Hugging Face model directory's ``config.json`` becomes a frozen ``ModelConfig``.

Llama, Mistral, Qwen2 and Qwen3 are one decoder with switches: biases, QK norm, sliding windows, a
RoPE variant. Absent fields take the value that transformers gives them. What this engine would
compute differently from transformers is refused here, by the field's name: a model either runs
exactly or not at all. This module reads JSON only; weights are ``pdengine.weights``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdcore.errors import ConfigError
from pdengine.config_fields import ConfigFields
from pdengine.rope import RopeConfig, read_rope
from pdengine.sampler import MAX_VOCAB


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """``layer_windows`` has one entry per layer: None, or the sliding window in tokens (a token
    sees itself and the ``window - 1`` before it). ``max_tokens`` bounds prompt + generated."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_tokens: int
    rms_norm_eps: float
    rope: RopeConfig
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied_embeddings: bool
    layer_windows: tuple[int | None, ...]
    eos_token_ids: tuple[int, ...]

    @property
    def num_groups(self) -> int:
        """Query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads


FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}

# Fields that change what the model computes; with any other value than the one given (or None) the
# model is refused.
_FIXED: dict[str, object] = {
    "hidden_act": "silu",
    "quantization_config": None,
    "compression_config": None,
    "partial_rotary_factor": 1.0,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "num_experts": None,
    "num_local_experts": None,
    "n_routed_experts": None,
    "is_encoder_decoder": False,
}


def load_config(model_dir: Path) -> ModelConfig:
    """Read ``config.json`` and, where there is one, ``generation_config.json``.

    Raises ``ConfigError`` with the file, the field, its value and what is supported.
    """
    path = model_dir / "config.json"
    if not path.is_file():
        raise ConfigError(f"{model_dir}: no config.json here; expected a Hugging Face directory")
    generation_path = model_dir / "generation_config.json"
    generation = _read_json(generation_path) if generation_path.is_file() else {}
    return config_from_table(_read_json(path), generation, where=str(path))


def config_from_table(
    table: Mapping[str, Any], generation: Mapping[str, Any] | None = None, *, where: str = "config"
) -> ModelConfig:
    """As ``load_config``, from tables that are parsed already."""
    fields = ConfigFields(table, where)
    family = _family(fields)
    for name, supported in _FIXED.items():
        fields.only(name, supported)
    num_layers = fields.positive("num_hidden_layers")
    num_heads = fields.positive("num_attention_heads")
    hidden_size = fields.positive("hidden_size")
    head_dim = fields.positive("head_dim", _default_head_dim(fields, family))
    if head_dim % 2:
        raise fields.error("head_dim", "an even number, as RoPE rotates pairs")
    num_kv_heads = fields.positive("num_key_value_heads", 8 if family == "mistral" else num_heads)
    if num_heads % num_kv_heads:
        raise fields.error("num_key_value_heads", f"a divisor of the {num_heads} attention heads")
    attention_bias = fields.flag("attention_bias") and family in ("llama", "qwen3")
    rope, max_tokens = read_rope(fields, head_dim)
    return ModelConfig(
        family=family,
        vocab_size=_vocab_size(fields),
        hidden_size=hidden_size,
        intermediate_size=fields.positive("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_tokens=max_tokens,
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope=rope,
        qkv_bias=attention_bias or family == "qwen2",
        output_bias=attention_bias,
        mlp_bias=fields.flag("mlp_bias") and family == "llama",
        qk_norm=family == "qwen3",
        tied_embeddings=fields.flag("tie_word_embeddings"),
        layer_windows=_layer_windows(fields, family, num_layers),
        eos_token_ids=_eos_token_ids(fields, generation or {}),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: expected a JSON object")
    return table


def _family(fields: ConfigFields) -> str:
    architectures = fields.table.get("architectures") or []
    if not isinstance(architectures, list):
        raise fields.error("architectures", f"a list with one of {', '.join(FAMILIES)}")
    if not architectures and fields.table.get("model_type") in FAMILIES.values():
        return str(fields.table["model_type"])
    for name in architectures:
        if name in FAMILIES:
            return FAMILIES[name]
    raise fields.error("architectures", f"one of {', '.join(FAMILIES)}")


def _vocab_size(fields: ConfigFields) -> int:
    vocab_size = fields.positive("vocab_size")
    if vocab_size > MAX_VOCAB:
        raise fields.error("vocab_size", f"at most {MAX_VOCAB}")
    return vocab_size


def _default_head_dim(fields: ConfigFields, family: str) -> int:
    if family == "qwen3":
        return 128
    return fields.positive("hidden_size") // fields.positive("num_attention_heads")


def _layer_windows(fields: ConfigFields, family: str, num_layers: int) -> tuple[int | None, ...]:
    if family == "llama":
        fields.layer_types(num_layers, {"full_attention"})
        return (None,) * num_layers
    if family == "mistral":
        if fields.table.get("layer_types") is not None:
            raise fields.error("layer_types", "a Mistral model whose layers are all alike")
        window = fields.optional_positive("sliding_window", 4096)
        return (window,) * num_layers
    return _qwen_windows(fields, num_layers)


def _qwen_windows(fields: ConfigFields, num_layers: int) -> tuple[int | None, ...]:
    sliding = fields.flag("use_sliding_window")
    window = fields.optional_positive("sliding_window", 4096) if sliding else None
    types = fields.layer_types(num_layers, {"full_attention", "sliding_attention"})
    if types is None:
        first_sliding = fields.count("max_window_layers", 28)
        return tuple(window if i >= first_sliding else None for i in range(num_layers))
    if window is None and "sliding_attention" in types:
        raise fields.error("layer_types", "sliding_attention only with use_sliding_window")
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _eos_token_ids(fields: ConfigFields, generation: Mapping[str, Any]) -> tuple[int, ...]:
    """``generation_config.json`` wins, as in transformers' ``generate``."""
    source = generation if generation.get("eos_token_id") is not None else fields.table
    value = source.get("eos_token_id")
    if value is None:
        return ()
    ids = value if isinstance(value, list) else [value]
    if not all(type(token) is int and token >= 0 for token in ids):
        raise ConfigError(
            f"{fields.where}: eos_token_id is {value!r}; expected a token id or a list of them"
        )
    return tuple(ids)
