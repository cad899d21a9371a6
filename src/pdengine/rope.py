"""Rotary position embedding: its variants as numbers, then angles, then the rotation.

A variant is a list of inverse frequencies and one factor on cos and sin, fixed at load:
``default``, ``linear``, ``dynamic``, ``yarn``, ``llama3``. ``longrope`` is refused, since its
frequencies depend on how long a sequence becomes, so that cached keys would have to change.

Formulas: linear (Chen et al., arXiv:2306.15595), YaRN (Peng et al., arXiv:2309.00071), llama3
(Llama 3.1 reference code). ``dynamic`` (NTK) equals ``default`` up to ``max_position_embeddings``,
and we never go beyond.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pdengine.config_fields import ConfigFields


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """``inverse_frequencies``: head_dim / 2 radians per position. ``scale`` multiplies cos, sin."""

    kind: str
    inverse_frequencies: tuple[float, ...]
    scale: float = 1.0


def read_rope(fields: ConfigFields, head_dim: int) -> tuple[RopeConfig, int]:
    """The RoPE variant and the most positions it serves, from ``rope_scaling`` + ``rope_theta``
    or from transformers 5's ``rope_parameters``.

    The most positions are ``max_position_embeddings``; only YaRN, which is defined by its original
    length and factor alone, reaches ``factor`` times the original length.
    """
    rope = _rope_fields(fields)
    kind = rope.table["rope_type"]
    if kind not in _VARIANTS:
        raise rope.error("rope_type", ", ".join(_VARIANTS))
    rope.only("partial_rotary_factor", 1.0)
    max_positions = fields.positive("max_position_embeddings")
    theta = rope.number("rope_theta", fields.number("rope_theta", 10000.0))
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / theta**exponents
    frequencies, scale = _VARIANTS[kind](plain, rope, theta)
    if kind == "yarn":
        reach = rope.number("original_max_position_embeddings") * rope.number("factor")
        max_positions = max(max_positions, int(reach))
    return RopeConfig(kind, tuple(frequencies.tolist()), scale), max_positions


def rope_angles(
    positions: Tensor, inverse_frequencies: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """cos and sin, float32 ``[num_tokens, head_dim / 2]``, of int64 positions ``[num_tokens]``."""
    angles = positions[:, None].float() * inverse_frequencies
    return angles.cos() * scale, angles.sin() * scale


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate ``x`` ``[num_tokens, heads, head_dim]``; element i pairs with i + head_dim / 2.

    ``cos`` and ``sin`` are ``[num_tokens, 1, head_dim / 2]`` in the dtype of ``x``.
    """
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _rope_fields(fields: ConfigFields) -> ConfigFields:
    """The table that holds ``rope_type``, with what older and newer files leave out filled in."""
    table = fields.table.get("rope_scaling") or fields.table.get("rope_parameters") or {}
    if not isinstance(table, Mapping):
        raise fields.error("rope_scaling", "an object")
    for name, value in table.items():
        if isinstance(value, Mapping):
            raise fields.error("rope_parameters", f"one table for all layers, not {name!r} apart")
    original = fields.table.get("original_max_position_embeddings") or table.get(
        "original_max_position_embeddings", fields.table.get("max_position_embeddings")
    )
    filled: dict[str, Any] = {
        **table,
        "rope_type": table.get("rope_type") or table.get("type") or "default",
        "original_max_position_embeddings": original,
    }
    return ConfigFields(filled, f"{fields.where}: RoPE")


def _default(plain: Tensor, rope: ConfigFields, theta: float) -> tuple[Tensor, float]:
    return plain, 1.0


def _linear(plain: Tensor, rope: ConfigFields, theta: float) -> tuple[Tensor, float]:
    return plain / rope.number("factor"), 1.0


def _yarn(plain: Tensor, rope: ConfigFields, theta: float) -> tuple[Tensor, float]:
    factor = rope.number("factor")
    original = rope.number("original_max_position_embeddings")
    half = len(plain)

    def dimension(rotations: float) -> float:
        """The pair of dimensions that turns ``rotations`` times over the original length."""
        return half * math.log(original / (rotations * 2 * math.pi)) / math.log(theta)

    low = dimension(rope.number("beta_fast", 32.0))
    high = dimension(rope.number("beta_slow", 1.0))
    if rope.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * half - 1)
    ramp = (torch.arange(half, dtype=torch.float32) - low) / (high - low or 0.001)
    interpolated = ramp.clamp(0, 1)
    frequencies = plain / factor * interpolated + plain * (1 - interpolated)
    return frequencies, _yarn_scale(rope, factor)


def _yarn_scale(rope: ConfigFields, factor: float) -> float:
    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if rope.table.get("attention_factor") is not None:
        return rope.number("attention_factor")
    if rope.table.get("mscale") and rope.table.get("mscale_all_dim"):
        return mscale(rope.number("mscale")) / mscale(rope.number("mscale_all_dim"))
    return mscale(1.0)


def _llama3(plain: Tensor, rope: ConfigFields, theta: float) -> tuple[Tensor, float]:
    factor = rope.number("factor")
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    original = rope.number("original_max_position_embeddings")
    turns = original * plain / (2 * math.pi)  # over the original length, per pair of dimensions
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * plain / factor + smooth * plain, 1.0


_VARIANTS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _default,
    "yarn": _yarn,
    "llama3": _llama3,
}
