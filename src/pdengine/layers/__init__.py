"""A decoder's layers over an attention backend: stage by stage on any device, or, on a CPU, all in
one call of our kernels."""

from typing import Protocol

from torch import Tensor

from pdengine.attention.cpu import CpuAttention
from pdengine.attention.interface import AttentionBackend
from pdengine.batch import StepBatch
from pdengine.config import ModelConfig
from pdengine.layers.fused import FusedLayers, fits
from pdengine.layers.staged import Rotation, StagedLayers
from pdengine.weights import ModelWeights


class Layers(Protocol):
    def run(self, batch: StepBatch, x: Tensor, rotation: Rotation) -> Tensor:
        """What the head multiplies, ``[num_tokens, hidden]`` as ``x``, the embedded tokens of
        ``batch``, which may be changed; their KV is in the cache then."""


def layers_for(config: ModelConfig, weights: ModelWeights, backend: AttentionBackend) -> Layers:
    if isinstance(backend, CpuAttention) and fits(config, weights):
        return FusedLayers(config, weights, backend)
    return StagedLayers(config, weights, backend)


__all__ = ["Layers", "Rotation", "layers_for"]
