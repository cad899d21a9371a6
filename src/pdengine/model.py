"""The decoder: token ids in, rows of logits out.

Follows transformers' numerics: norms and RoPE angles in float32, everything else in the model's
dtype. Attention and the KV cache are the backend's; this file knows neither pages nor sequences.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding

from pdengine.batch import StepBatch
from pdengine.config import ModelConfig
from pdengine.layers import Layers, Rotation
from pdengine.rope import rope_angles
from pdengine.weights import ModelWeights


class Model:
    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        self.config = config
        self.weights = weights
        self._frequencies = torch.tensor(
            config.rope.inverse_frequencies, dtype=torch.float32, device=weights.embedding.device
        )

    def forward(self, batch: StepBatch, layers: Layers, rows: Tensor) -> Tensor:
        """Compute every token of ``batch``; float32 logits ``[len(rows), vocab_size]`` of ``rows``
        (int64 indices into the batch's tokens). ``layers`` are this model's, over some memory."""
        x = embedding(batch.token_ids, self.weights.embedding)
        normed = layers.run(batch, x, self._rotation(batch.positions, x.dtype))
        return self.weights.head(normed[rows]).float()

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        cos, sin = rope_angles(positions, self._frequencies, self.config.rope.scale)
        return cos.to(dtype)[:, None], sin.to(dtype)[:, None]
