"""Layers as torch code on any device. One function per idea, tensors as arguments."""

import torch
from torch import Tensor

from pdengine.attention.interface import AttentionBackend
from pdengine.batch import StepBatch
from pdengine.config import ModelConfig
from pdengine.elementwise import elementwise_for
from pdengine.weights import LayerWeights, ModelWeights

Rotation = tuple[Tensor, Tensor]  # cos and sin, each [num_tokens, 1, head_dim / 2]


class StagedLayers:
    def __init__(
        self, config: ModelConfig, weights: ModelWeights, backend: AttentionBackend
    ) -> None:
        self._config = config
        self._weights = weights
        self._backend = backend
        device, dtype = weights.embedding.device, weights.embedding.dtype
        widths = (config.hidden_size, config.intermediate_size)
        self._by = elementwise_for(device, dtype, config.rms_norm_eps, config.head_dim, *widths)

    def run(self, batch: StepBatch, x: Tensor, rotation: Rotation) -> Tensor:
        self._backend.plan(batch)
        normed = self._by.norm(x, self._weights.layers[0].input_norm)
        for index, layer in enumerate(self._weights.layers):
            attended = self._attention(index, layer, normed, rotation)
            x, normed = self._by.add_and_norm(x, attended, layer.mlp_norm)
            x, normed = self._by.add_and_norm(x, self._mlp(layer, normed), self._next_norm(index))
        return normed

    def _attention(
        self,
        index: int,
        layer: LayerWeights,
        x: Tensor,
        rotation: Rotation,
    ) -> Tensor:
        config = self._config
        parts = (config.num_heads, config.num_heads + config.num_kv_heads)
        heads = layer.qkv(x).view(len(x), -1, config.head_dim)
        if layer.query_norm is not None and layer.key_norm is not None:
            q, k, v = heads.tensor_split(parts, 1)
            q, k = self._by.norm(q, layer.query_norm), self._by.norm(k, layer.key_norm)
            heads = torch.cat((q, k, v), 1)
        q, k, v = self._by.rotate(heads, parts[1], *rotation).tensor_split(parts, 1)
        return layer.output(self._backend.run(index, q, k, v).flatten(1))

    def _mlp(self, layer: LayerWeights, x: Tensor) -> Tensor:
        return layer.down(self._by.gated(layer.gate_up(x)))

    def _next_norm(self, index: int) -> Tensor:
        """The norm before the layer after ``index``, or before the head."""
        layers = self._weights.layers
        return layers[index + 1].input_norm if index + 1 < len(layers) else self._weights.final_norm
