"""Linear layers: ``x @ weight.T + bias``, weight ``[out, in]`` as torch stores it.

Where our kernel reads weights faster than torch does, steps of few rows go to it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from pdengine.kernels.linear import can_multiply, few_rows, rows_until_torch_is_faster

Projection = Callable[[Tensor], Tensor]


def projection(weight: Tensor, bias: Tensor | None = None) -> Projection:
    if can_multiply(weight):
        max_rows = rows_until_torch_is_faster(weight.dtype, torch.get_num_threads())
        if max_rows:
            return _ByRows(weight, bias, max_rows)
    return _Torch(weight, bias)


@dataclass(frozen=True, slots=True)
class _Torch:
    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class _ByRows:
    """Up to ``max_rows`` by our kernel."""

    weight: Tensor
    bias: Tensor | None
    max_rows: int

    def __call__(self, x: Tensor) -> Tensor:
        multiply = few_rows if len(x) <= self.max_rows else linear
        return multiply(x, self.weight, self.bias)
