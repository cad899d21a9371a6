"""A loaded model with memory of its own, computed slice by slice, with every row's logits."""

import random
from pathlib import Path

import torch
from torch import Tensor

from pdcore.kv_layout import KvLayout
from pdengine.attention import build_backend
from pdengine.batch import Slice, StepBatch
from pdengine.config import load_config
from pdengine.kv_cache import KvCache
from pdengine.layers import layers_for
from pdengine.model import Model
from pdengine.sequence import Sequence
from pdengine.weights import load_weights
from sample_request import request


class ModelRig:
    """Pages are handed out in random order and start as NaN: only what was written may be read."""

    def __init__(
        self,
        model_dir: Path,
        page_tokens: int = 16,
        dtype: str = "float32",
        *,
        num_pages: int = 64,
        device_name: str = "cpu",
        attention: str = "torch",
        as_int8: bool = False,
    ) -> None:
        config = load_config(model_dir)
        device = torch.device(device_name)
        layout = KvLayout(
            "tiny", config.num_layers, config.num_kv_heads, config.head_dim, page_tokens, dtype
        )
        self.kv = KvCache(layout, num_pages, device)
        self.kv.pages.fill_(torch.nan)
        weights = load_weights(config, model_dir, self.kv.pages.dtype, device, as_int8=as_int8)
        self.model = Model(config, weights)
        self.backend = build_backend(attention, config, self.kv)
        self.layers = layers_for(config, weights, self.backend)
        self._free = list(range(num_pages))
        random.Random(0).shuffle(self._free)

    def sequence(self, token_ids: list[int]) -> Sequence:
        num_pages = self.kv.layout.num_pages(len(token_ids))
        pages = [self._free.pop() for _ in range(num_pages)]
        return Sequence(request(tuple(token_ids)), 0, pages)

    @torch.inference_mode()
    def compute(self, *slices: tuple[Sequence, int]) -> list[Tensor]:
        """One step; the logits of each slice, [its tokens, vocab]."""
        batch = StepBatch.of(
            [Slice(sequence, num_tokens, (0,)) for sequence, num_tokens in slices],
            self.kv.layout.page_tokens,
            self.kv.device,
        )
        rows = torch.arange(len(batch.token_ids), device=self.kv.device)
        logits = self.model.forward(batch, self.layers, rows)
        for sequence, num_tokens in slices:
            sequence.num_computed += num_tokens
        return list(logits.split([num_tokens for _, num_tokens in slices]))

    def in_chunks(self, sequence: Sequence, chunks: list[int]) -> Tensor:
        """All of a sequence's logits, computed in these chunks."""
        return torch.cat([self.compute((sequence, num_tokens))[0] for num_tokens in chunks])
