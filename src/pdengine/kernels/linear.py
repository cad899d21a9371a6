"""Matrices as our kernels read them, and their products.

A matrix is packed once, at load: sixteen rows side by side, in 8 bits if that is asked for. The
product of a row is the same, bit by bit, whatever rows are beside it: a step that is batched or cut
another way differs in its attention at most.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from pdengine.kernels.arena import Arena
from pdengine.kernels.library import DTYPES, PANEL, Matrix, kernel, unavailable

INT8_MOST = 127
BLOCK_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Int8:
    """``weight`` rounded to 8 bits: int8 ``[out, in]`` times float32 ``[out]``."""

    values: Tensor
    scales: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> "Int8":
        least = torch.finfo(torch.float32).tiny
        scales = weight.abs().amax(dim=1).float().clamp_min_(least) / INT8_MOST
        values = torch.empty(weight.shape, dtype=torch.int8)
        for first in range(0, len(weight), BLOCK_ROWS):  # all in float32 would be much memory
            rows = slice(first, first + BLOCK_ROWS)
            values[rows] = (weight[rows] / scales[rows, None]).round_()
        return cls(values, scales)


class Packed:
    """``x @ weight.T + bias``. ``dtype``, of ``x`` and the result, is float32 or bfloat16."""

    def __init__(
        self, weight: Tensor | Int8, bias: Tensor | None, dtype: torch.dtype, arena: Arena
    ) -> None:
        self.dtype = dtype
        values = weight.values if isinstance(weight, Int8) else weight
        self.num_out, self.num_in = values.shape
        self.values = _packed(values, kernel("columns_together", dtype)(), arena)
        self._scales = _to_whole_panels(weight.scales) if isinstance(weight, Int8) else None
        self._bias = None if bias is None else _to_whole_panels(bias.to(dtype))
        self._product = kernel("product", dtype)
        self.matrix = Matrix(
            values=self.values.data_ptr(),
            scales=None if self._scales is None else self._scales.data_ptr(),
            bias=None if self._bias is None else self._bias.data_ptr(),
            num_in=self.num_in,
            num_out=self.num_out,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of weights that a product reads."""
        return self.values.nbytes + (0 if self._scales is None else self._scales.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        """``[rows, in]`` to ``[rows, out]``; added up in float32 and rounded once."""
        assert x.dtype == self.dtype and x.shape[1] == self.num_in
        x = x.contiguous()
        out = torch.empty(len(x), self.num_out, dtype=self.dtype)
        self._product(self.matrix, x.data_ptr(), len(x), torch.get_num_threads(), out.data_ptr())
        return out


def obstacle(weight: Tensor) -> str | None:
    """Why our kernels cannot take this weight, or None; compiles them."""
    if weight.device.type != "cpu":
        return f"it is on {weight.device.type}, not on a CPU"
    if weight.dtype not in DTYPES:
        return f"it is {weight.dtype}, not one of {', '.join(map(str, DTYPES))}"
    if weight.shape[1] % 2:
        return f"its shape is {tuple(weight.shape)}, with an odd number of columns"
    return unavailable()


def _packed(values: Tensor, columns: int, arena: Arena) -> Tensor:
    """``[panels, in / columns, PANEL, columns]``."""
    values = _to_whole_panels(values)
    num_out, num_in = values.shape
    apart = values.view(num_out // PANEL, PANEL, num_in // columns, columns)
    packed = arena.take(values.numel(), values.dtype)
    packed = packed.view(num_out // PANEL, num_in // columns, PANEL, columns)
    return packed.copy_(apart.transpose(1, 2))


def _to_whole_panels(rows: Tensor) -> Tensor:
    """With zeros up to a multiple of ``PANEL`` rows; contiguous."""
    missing = -len(rows) % PANEL
    if not missing:
        return rows.contiguous()
    return pad(rows, (0, 0) * (rows.dim() - 1) + (0, missing)).contiguous()
