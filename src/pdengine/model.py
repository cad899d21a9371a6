"""The decoder: token ids in, rows of logits out. One function per idea, tensors as arguments.

Follows transformers' numerics: norms and RoPE angles in float32, everything else in the model's
dtype. Attention and the KV cache are the backend's; this file knows neither pages nor sequences.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding

from pdengine.attention.interface import AttentionBackend
from pdengine.batch import StepBatch
from pdengine.config import ModelConfig
from pdengine.elementwise import elementwise_for
from pdengine.rope import rope_angles
from pdengine.weights import LayerWeights, ModelWeights


class Model:
    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        self.config = config
        self.weights = weights
        device, dtype = weights.embedding.device, weights.embedding.dtype
        self._frequencies = torch.tensor(
            config.rope.inverse_frequencies, dtype=torch.float32, device=device
        )
        widths = (config.hidden_size, config.intermediate_size)
        self._by = elementwise_for(device, dtype, config.rms_norm_eps, config.head_dim, *widths)

    def forward(self, batch: StepBatch, backend: AttentionBackend, rows: Tensor) -> Tensor:
        """Compute every token of ``batch``; float32 logits ``[len(rows), vocab_size]`` of ``rows``
        (int64 indices into the batch's tokens)."""
        backend.plan(batch)
        x = embedding(batch.token_ids, self.weights.embedding)
        rotation = self._rotation(batch.positions, x.dtype)
        normed = self._by.norm(x, self.weights.layers[0].input_norm)
        for index, layer in enumerate(self.weights.layers):
            attended = self._attention(index, layer, normed, rotation, backend)
            x, normed = self._by.add_and_norm(x, attended, layer.mlp_norm)
            x, normed = self._by.add_and_norm(x, self._mlp(layer, normed), self._next_norm(index))
        return self.weights.head(normed[rows]).float()

    def _attention(
        self,
        index: int,
        layer: LayerWeights,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        backend: AttentionBackend,
    ) -> Tensor:
        config = self.config
        parts = (config.num_heads, config.num_heads + config.num_kv_heads)
        heads = layer.qkv(x).view(len(x), -1, config.head_dim)
        if layer.query_norm is not None and layer.key_norm is not None:
            q, k, v = heads.tensor_split(parts, 1)
            q, k = self._by.norm(q, layer.query_norm), self._by.norm(k, layer.key_norm)
            heads = torch.cat((q, k, v), 1)
        q, k, v = self._by.rotate(heads, parts[1], *rotation).tensor_split(parts, 1)
        return layer.output(backend.run(index, q, k, v).flatten(1))

    def _mlp(self, layer: LayerWeights, x: Tensor) -> Tensor:
        return layer.down(self._by.gated(layer.gate_up(x)))

    def _next_norm(self, index: int) -> Tensor:
        """The norm before the layer after ``index``, or before the head."""
        layers = self.weights.layers
        return layers[index + 1].input_norm if index + 1 < len(layers) else self.weights.final_norm

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin, each ``[num_tokens, 1, head_dim / 2]``."""
        cos, sin = rope_angles(positions, self._frequencies, self.config.rope.scale)
        return cos.to(dtype)[:, None], sin.to(dtype)[:, None]
