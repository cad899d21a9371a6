"""A matrix product that reads its weights once for a few rows of input, as decode steps need it.

torch's own is better from some number of rows on, which depends on the processor and the dtype: it
is measured once, when the first weights are loaded, in some hundredths of a second.
"""

from collections.abc import Callable
from functools import cache
from time import perf_counter

import torch
from torch import Tensor
from torch.nn.functional import linear

from pdengine.kernels.library import DTYPES, LANES, kernels, unavailable

OUTS = 4  # rows of the weight that the kernel takes together
_TRIED_ROWS = (1, 2, 4, 8, 16, 32, 64)
_TRIED_SHAPE = (1536, 576)
_TRIED_WEIGHTS = 24  # more than a cache holds, as a model's are
_TRIALS = 3


def few_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``[rows, in]`` by ``[out, in]``, computed in float32 and rounded once."""
    wide = x.float().contiguous()
    out = torch.empty(len(x), len(weight), dtype=weight.dtype)
    function = getattr(kernels(), f"pdspan_linear_{DTYPES[weight.dtype]}")
    function(
        wide.data_ptr(),
        weight.data_ptr(),
        None if bias is None else bias.data_ptr(),
        *(len(x), weight.shape[1], len(weight)),
        torch.get_num_threads(),
        out.data_ptr(),
    )
    return out


def can_multiply(weight: Tensor) -> bool:
    """Whether the kernel takes this weight; compiles it."""
    if weight.device.type != "cpu" or weight.dtype not in DTYPES or not weight.is_contiguous():
        return False
    if weight.shape[0] % OUTS or weight.shape[1] % LANES:
        return False
    return unavailable() is None


@cache
def rows_until_torch_is_faster(dtype: torch.dtype, num_threads: int) -> int:
    """0 where torch always is. ``num_threads`` are those in force."""
    weights = torch.randn(_TRIED_WEIGHTS, *_TRIED_SHAPE).to(dtype)
    most = 0
    for num_rows in _TRIED_ROWS:
        x = torch.randn(num_rows, _TRIED_SHAPE[1]).to(dtype)
        if _seconds(few_rows, x, weights) > _seconds(linear, x, weights):
            break
        most = num_rows
    return most


def _seconds(
    multiply: Callable[[Tensor, Tensor, None], Tensor], x: Tensor, weights: Tensor
) -> float:
    """The least of some trials."""
    least = float("inf")
    for _ in range(_TRIALS):
        started = perf_counter()
        for weight in weights:
            multiply(x, weight, None)
        least = min(least, perf_counter() - started)
    return least
