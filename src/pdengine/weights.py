"""Named tensors of a checkpoint become the fused weights that ``pdengine.model`` multiplies by.

Q, K and V are one matrix, gate and up another: fewer and larger products, with the same result row
by row. Names and shapes are checked against the config before anything is loaded.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pdengine.checkpoint import Checkpoint
from pdengine.config import ModelConfig
from pdengine.kernels.arena import Arena
from pdengine.projection import Projection, projection

Progress = Callable[[str, float], None]

# Stored by some exporters though they follow from the config, or are tied.
_IGNORED = ("rotary_emb.inv_freq",)


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """``qkv`` rows: query heads, KV heads' keys, KV heads' values. ``gate_up`` rows: gate, up."""

    input_norm: Tensor
    qkv: Projection
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Projection
    mlp_norm: Tensor
    gate_up: Projection
    down: Projection


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """``head`` and ``embedding`` may be the same numbers; a packed head lies apart, since tokens
    are looked up in rows."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    head: Projection

    @property
    def product_bytes(self) -> int:
        """Of every matrix that a step multiplies by, which reads each of them once at least."""
        layers = sum(
            layer.qkv.nbytes + layer.output.nbytes + layer.gate_up.nbytes + layer.down.nbytes
            for layer in self.layers
        )
        return layers + self.head.nbytes


def load_weights(
    config: ModelConfig,
    model_dir: Path,
    dtype: torch.dtype,
    device: torch.device,
    progress: Progress | None = None,
    *,
    as_int8: bool = False,
) -> ModelWeights:
    """Load, convert to ``dtype`` and fuse. ``progress`` gets ("weights", done) with done up to 1.
    ``as_int8``: matrices in 8 bits, all but the embedding that tokens are looked up in.

    Raises ConfigError with the name of a tensor that is missing, unknown or misshapen.
    """
    checkpoint = Checkpoint.open(model_dir)
    ignored = (*_IGNORED, "lm_head.weight") if config.tied_embeddings else _IGNORED
    checkpoint.check(needed_tensors(config), ignored)
    loader = _Loader(checkpoint, dtype, device, as_int8, Arena())
    layers = []
    for layer in range(config.num_layers):
        layers.append(loader.layer(config, layer))
        if progress is not None:
            progress("weights", (layer + 1) / (config.num_layers + 1))
    embedding = loader.one("model.embed_tokens.weight")
    head = embedding if config.tied_embeddings else loader.one("lm_head.weight")
    final_norm = loader.one("model.norm.weight")
    if progress is not None:
        progress("weights", 1.0)
    return ModelWeights(embedding, tuple(layers), final_norm, loader.packed(head))


def needed_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that the config calls for, as transformers names them."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, config.hidden_size),
        "model.norm.weight": (config.hidden_size,),
    }
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    for layer in range(config.num_layers):
        for name, shape in _layer_tensors(config):
            shapes[f"model.layers.{layer}.{name}"] = shape
    return shapes


def _layer_tensors(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    linears = (
        ("self_attn.q_proj", query, hidden, config.qkv_bias),
        ("self_attn.k_proj", kv, hidden, config.qkv_bias),
        ("self_attn.v_proj", kv, hidden, config.qkv_bias),
        ("self_attn.o_proj", hidden, query, config.output_bias),
        ("mlp.gate_proj", inner, hidden, config.mlp_bias),
        ("mlp.up_proj", inner, hidden, config.mlp_bias),
        ("mlp.down_proj", hidden, inner, config.mlp_bias),
    )
    for name, num_out, num_in, has_bias in linears:
        yield f"{name}.weight", (num_out, num_in)
        if has_bias:
            yield f"{name}.bias", (num_out,)
    yield "input_layernorm.weight", (hidden,)
    yield "post_attention_layernorm.weight", (hidden,)
    if config.qk_norm:
        yield "self_attn.q_norm.weight", (config.head_dim,)
        yield "self_attn.k_norm.weight", (config.head_dim,)


@dataclass(frozen=True, slots=True)
class _Loader:
    checkpoint: Checkpoint
    dtype: torch.dtype
    device: torch.device
    as_int8: bool
    arena: Arena

    def one(self, name: str) -> Tensor:
        (tensor,) = self.checkpoint.load([name], self.dtype, self.device)
        return tensor

    def fused(self, *names: str) -> Projection:
        """Linear layers with the same input, stacked along their outputs."""
        has_bias = f"{names[0]}.bias" in self.checkpoint.shapes
        return self.packed(
            torch.cat([self.one(f"{name}.weight") for name in names]),
            torch.cat([self.one(f"{name}.bias") for name in names]) if has_bias else None,
        )

    def packed(self, weight: Tensor, bias: Tensor | None = None) -> Projection:
        return projection(weight, bias, self.arena, as_int8=self.as_int8)

    def layer(self, config: ModelConfig, layer: int) -> LayerWeights:
        prefix = f"model.layers.{layer}."
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        return LayerWeights(
            input_norm=self.one(f"{prefix}input_layernorm.weight"),
            qkv=self.fused(f"{attention}q_proj", f"{attention}k_proj", f"{attention}v_proj"),
            query_norm=self.one(f"{attention}q_norm.weight") if config.qk_norm else None,
            key_norm=self.one(f"{attention}k_norm.weight") if config.qk_norm else None,
            output=self.fused(f"{attention}o_proj"),
            mlp_norm=self.one(f"{prefix}post_attention_layernorm.weight"),
            gate_up=self.fused(f"{mlp}gate_proj", f"{mlp}up_proj"),
            down=self.fused(f"{mlp}down_proj"),
        )
