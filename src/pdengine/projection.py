"""Linear layers: ``x @ weight.T + bias``, weight ``[out, in]``. By our kernels where they can, else
by torch."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn.functional import linear

from pdcore.errors import ConfigError
from pdengine.kernels.arena import Arena
from pdengine.kernels.linear import Int8, Packed, obstacle


class Projection(Protocol):
    @property
    def nbytes(self) -> int:
        """Bytes of weights that a product reads."""
        ...

    def __call__(self, x: Tensor) -> Tensor: ...


def projection(
    weight: Tensor, bias: Tensor | None, arena: Arena, *, as_int8: bool = False
) -> Projection:
    """``arena``: what a packed weight lies in; the weight given is needed no longer then.
    ``as_int8``: keep it in 8 bits. Raises ConfigError where no kernel is for that."""
    reason = obstacle(weight)
    if reason is None:
        return Packed(Int8.of(weight) if as_int8 else weight, bias, weight.dtype, arena)
    if as_int8:
        raise ConfigError(f"engine.weights is 'int8', but a weight has no kernel: {reason}")
    return TorchProjection(weight, bias)


@dataclass(frozen=True, slots=True)
class TorchProjection:
    weight: Tensor
    bias: Tensor | None

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)
