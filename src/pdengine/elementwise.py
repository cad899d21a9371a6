"""What the model does between its matrix products, by torch alone or by our kernels on a CPU.

Both follow transformers' numerics: norms in float32, each product rounded to the model's dtype.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import silu

from pdengine.kernels.library import DTYPES, LANES, kernel, unavailable
from pdengine.rope import rotate


class Elementwise(Protocol):
    """``x`` is ``[num_tokens, hidden]``, heads ``[num_tokens, heads, head_dim]``."""

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm over the last dimension, its mean in float32."""

    def add_and_norm(self, x: Tensor, delta: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """``x + delta``, and that normalised. ``x`` may be changed in place."""

    def rotate(self, heads: Tensor, num_rotated: int, cos: Tensor, sin: Tensor) -> Tensor:
        """The first ``num_rotated`` heads rotated, the others as they are; perhaps in place."""

    def gated(self, gate_up: Tensor) -> Tensor:
        """``silu(gate) * up``, of two halves of the last dimension."""


class TorchElementwise:
    def __init__(self, epsilon: float) -> None:
        self._epsilon = epsilon

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self._epsilon)
        return weight * (wide * scale).to(x.dtype)

    def add_and_norm(self, x: Tensor, delta: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        x = x + delta
        return x, self.norm(x, weight)

    def rotate(self, heads: Tensor, num_rotated: int, cos: Tensor, sin: Tensor) -> Tensor:
        rotated, rest = heads.tensor_split((num_rotated,), 1)
        return torch.cat((rotate(rotated, cos, sin), rest), 1)

    def gated(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return silu(gate) * up


class CpuElementwise:
    """For float32 and bfloat16, dimensions that are multiples of 16, and of 32 in a head."""

    def __init__(self, dtype: torch.dtype, epsilon: float) -> None:
        self._epsilon = epsilon
        self._norm = kernel("rms_norm", dtype)
        self._rotate = kernel("rotate", dtype)
        self._gated = kernel("gated", dtype)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._normed(x.contiguous(), None, weight)

    def add_and_norm(self, x: Tensor, delta: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return x, self._normed(x, delta, weight)

    def rotate(self, heads: Tensor, num_rotated: int, cos: Tensor, sin: Tensor) -> Tensor:
        num_rows, _, head_dim = heads.shape
        self._rotate(
            *(heads.data_ptr(), heads.stride(0), cos.data_ptr(), sin.data_ptr()),
            *(num_rows, num_rotated, head_dim, torch.get_num_threads()),
        )
        return heads

    def gated(self, gate_up: Tensor) -> Tensor:
        num_rows, width = gate_up.shape
        out = gate_up.new_empty(num_rows, width // 2)
        threads = torch.get_num_threads()
        self._gated(gate_up.data_ptr(), num_rows, width // 2, threads, out.data_ptr())
        return out

    def _normed(self, x: Tensor, delta: Tensor | None, weight: Tensor) -> Tensor:
        out = torch.empty_like(x)
        dim = x.shape[-1]
        added = None if delta is None else delta.data_ptr()
        self._norm(
            *(x.data_ptr(), added, weight.data_ptr(), self._epsilon),
            *(x.numel() // dim, dim, torch.get_num_threads(), out.data_ptr()),
        )
        return out


def elementwise_for(
    device: torch.device, dtype: torch.dtype, epsilon: float, head_dim: int, *dims: int
) -> Elementwise:
    """``dims``: every other width that is normalised or gated."""
    fits = not (head_dim % (2 * LANES) or any(dim % LANES for dim in dims))
    if device.type == "cpu" and dtype in DTYPES and fits and unavailable() is None:
        return CpuElementwise(dtype, epsilon)
    return TorchElementwise(epsilon)
