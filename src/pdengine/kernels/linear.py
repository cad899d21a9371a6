"""A matrix product that reads its weights once for a few rows of input, as decode steps need it.

torch's own is better from some number of rows on. That number is a rule, by dtype and instructions,
and not a trial at the start: nodes with the same kind of processor must round alike, however busy
they were when they started.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from pdengine.kernels.library import DTYPES, LANES, kernels, unavailable

INT8_MOST = 127
OUTS = 4  # rows of the weight that the kernel takes together
MOST_ROWS = 16
MOST_ROWS_IN_PAIRS = 32  # where one instruction multiplies pairs of bfloat16
MOST_ROWS_WIDENED = 64  # bfloat16 without it, which torch too has to widen first


def few_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``[rows, in]`` by ``[out, in]``, both of one dtype; added up in float32 and rounded once."""
    assert x.dtype == weight.dtype
    x = x.contiguous()
    out = torch.empty(len(x), len(weight), dtype=weight.dtype)
    function = getattr(kernels(), f"pdspan_linear_{DTYPES[weight.dtype]}")
    function(
        x.data_ptr(),
        weight.data_ptr(),
        None if bias is None else bias.data_ptr(),
        *(len(x), weight.shape[1], len(weight)),
        torch.get_num_threads(),
        out.data_ptr(),
    )
    return out


@dataclass(frozen=True, slots=True)
class Int8:
    """``weight`` rounded to 8 bits: int8 ``[out, in]`` times float32 ``[out]``."""

    values: Tensor
    scales: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> Self:
        wide = weight.float()
        scales = wide.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny) / INT8_MOST
        return cls((wide / scales[:, None]).round().to(torch.int8), scales)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.scales.nbytes

    def restored(self, dtype: torch.dtype) -> Tensor:
        return (self.values * self.scales[:, None]).to(dtype)


def few_rows_int8(x: Tensor, weight: Int8, bias: Tensor | None) -> Tensor:
    """As ``few_rows``; the result has the dtype of ``x``."""
    wide = x.float().contiguous()
    num_out, num_in = weight.values.shape
    out = torch.empty(len(x), num_out, dtype=x.dtype)
    function = getattr(kernels(), f"pdspan_linear_int8_{DTYPES[x.dtype]}")
    function(
        wide.data_ptr(),
        weight.values.data_ptr(),
        weight.scales.data_ptr(),
        None if bias is None else bias.data_ptr(),
        *(len(x), num_in, num_out),
        torch.get_num_threads(),
        out.data_ptr(),
    )
    return out


def obstacle(weight: Tensor) -> str | None:
    """Why the kernel cannot take this weight, or None; compiles it."""
    if weight.device.type != "cpu":
        return f"it is on {weight.device.type}, not on a CPU"
    if weight.dtype not in DTYPES:
        return f"it is {weight.dtype}, not one of {', '.join(map(str, DTYPES))}"
    if weight.shape[0] % OUTS or weight.shape[1] % LANES or not weight.is_contiguous():
        return f"its shape {tuple(weight.shape)} is no multiple of ({OUTS}, {LANES})"
    return unavailable()


def most_rows(dtype: torch.dtype) -> int:
    """Of more rows torch's product is the faster one, or as fast."""
    if dtype is not torch.bfloat16:
        return MOST_ROWS
    has_pairs = torch.cpu.get_capabilities().get("avx512_bf16", False)
    return MOST_ROWS_IN_PAIRS if has_pairs else MOST_ROWS_WIDENED
