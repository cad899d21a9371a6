"""Linear layers: ``x @ weight.T + bias``, weight ``[out, in]`` as torch stores it.

Where our kernel reads weights faster than torch does, steps of few rows go to it.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn.functional import linear

from pdcore.errors import ConfigError
from pdengine.kernels.linear import (
    Int8,
    few_rows,
    few_rows_int8,
    most_rows,
    obstacle,
)

MOST_INT8_ROWS = 64


class Projection(Protocol):
    @property
    def nbytes(self) -> int:
        """Bytes of weights that a product reads."""
        ...

    def __call__(self, x: Tensor) -> Tensor: ...


def projection(weight: Tensor, bias: Tensor | None = None, *, as_int8: bool = False) -> Projection:
    """``as_int8``: keep the weight in 8 bits. Raises ConfigError where no kernel is for it."""
    if as_int8:
        if (reason := obstacle(weight)) is not None:
            raise ConfigError(f"engine.weights is 'int8', but a weight has no kernel: {reason}")
        return _ByInt8(Int8.of(weight), bias)
    if obstacle(weight) is None:
        return _ByRows(weight, bias, most_rows(weight.dtype))
    return _Torch(weight, bias)


@dataclass(frozen=True, slots=True)
class _Torch:
    weight: Tensor
    bias: Tensor | None

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class _ByRows:
    """Up to ``max_rows`` by our kernel."""

    weight: Tensor
    bias: Tensor | None
    max_rows: int

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        multiply = few_rows if len(x) <= self.max_rows else linear
        return multiply(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class _ByInt8:
    """Many rows meet the weight as it was before, but for rounding."""

    weight: Int8
    bias: Tensor | None

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) <= MOST_INT8_ROWS:
            return few_rows_int8(x, self.weight, self.bias)
        return linear(x, self.weight.restored(x.dtype), self.bias)
