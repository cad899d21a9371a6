"""The decoder: token ids in, rows of logits out. One function per idea, tensors as arguments.

Follows transformers' numerics: norms and RoPE angles in float32, everything else in the model's
dtype. Attention and the KV cache are the backend's; this file knows neither pages nor sequences.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding, silu

from pdengine.attention.interface import AttentionBackend
from pdengine.batch import StepBatch
from pdengine.config import ModelConfig
from pdengine.rope import rope_angles, rotate
from pdengine.weights import LayerWeights, ModelWeights


class Model:
    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        self.config = config
        self.weights = weights
        self._frequencies = torch.tensor(
            config.rope.inverse_frequencies, dtype=torch.float32, device=weights.embedding.device
        )

    def forward(self, batch: StepBatch, backend: AttentionBackend, rows: Tensor) -> Tensor:
        """Compute every token of ``batch``; float32 logits ``[len(rows), vocab_size]`` of ``rows``
        (int64 indices into the batch's tokens)."""
        backend.plan(batch)
        x = embedding(batch.token_ids, self.weights.embedding)
        rotation = self._rotation(batch.positions, x.dtype)
        for index, layer in enumerate(self.weights.layers):
            normed = self._norm(x, layer.input_norm)
            x = x + self._attention(index, layer, normed, rotation, backend)
            x = x + _mlp(layer, self._norm(x, layer.mlp_norm))
        x = self._norm(x[rows], self.weights.final_norm)
        return self.weights.head(x).float()

    def _attention(
        self,
        index: int,
        layer: LayerWeights,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        backend: AttentionBackend,
    ) -> Tensor:
        config = self.config
        heads = layer.qkv(x).view(len(x), -1, config.head_dim)
        q, k, v = heads.tensor_split((config.num_heads, config.num_heads + config.num_kv_heads), 1)
        if layer.query_norm is not None and layer.key_norm is not None:
            q, k = self._norm(q, layer.query_norm), self._norm(k, layer.key_norm)
        q, k = rotate(q, *rotation), rotate(k, *rotation)
        return layer.output(backend.run(index, q, k, v).flatten(1))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm over the last dimension, its mean in float32."""
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return weight * (wide * scale).to(x.dtype)

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        cos, sin = rope_angles(positions, self._frequencies, self.config.rope.scale)
        return cos.to(dtype)[:, None], sin.to(dtype)[:, None]


def _mlp(layer: LayerWeights, x: Tensor) -> Tensor:
    gate, up = layer.gate_up(x).chunk(2, dim=-1)
    return layer.down(silu(gate) * up)
