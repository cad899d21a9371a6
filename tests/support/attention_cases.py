"""One attention step on random memory, and what float64 says it should give.

Page tables are permuted, lengths ragged, and every slot that no context holds is NaN: a backend
that reads it cannot give the right answer.
"""

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pdcore.kv_layout import KvLayout
from pdengine.attention import AttentionBackend
from pdengine.batch import Slice, StepBatch
from pdengine.config import ModelConfig, config_from_table
from pdengine.kv_cache import KvCache
from pdengine.sequence import Sequence
from sample_request import request
from tiny_configs import config_table

NUM_LAYERS = 2

# (tokens computed before, tokens of this step) of each slice
DECODE = ((0, 1), (7, 1), (15, 1), (16, 1), (40, 1), (63, 1), (64, 1), (199, 1))
PREFILL = ((0, 5), (0, 64), (3, 20), (64, 33))
MIXED = ((130, 1), (0, 40), (5, 1), (17, 16), (0, 1))


@dataclass(frozen=True)
class Shape:
    page_tokens: int = 16
    head_dim: int = 64
    num_heads: int = 6
    num_kv_heads: int = 2
    window: int | None = None  # of the second layer; the first one has none
    dtype: str = "float32"


class AttentionCase:
    """``lengths``: of each slice, the tokens computed before and the tokens of this step."""

    def __init__(
        self, shape: Shape, lengths: tuple[tuple[int, int], ...], device: str = "cpu"
    ) -> None:
        self.config = _config(shape)
        self.kv = _cache(shape, sum(-(-sum(pair) // shape.page_tokens) for pair in lengths), device)
        generator = torch.Generator().manual_seed(0)
        self._contexts = [
            torch.randn(
                NUM_LAYERS, 2, sum(pair), shape.num_kv_heads, shape.head_dim, generator=generator
            ).to(device, self.kv.pages.dtype)
            for pair in lengths
        ]
        self.batch = self._batch(lengths)
        self._fill(lengths)
        num_tokens = sum(num_new for _, num_new in lengths)
        self.q = torch.randn(
            NUM_LAYERS, num_tokens, shape.num_heads, shape.head_dim, generator=generator
        ).to(device, self.kv.pages.dtype)

    def run(self, backend: AttentionBackend) -> Tensor:
        """All layers' results, as the model would call for them."""
        with torch.inference_mode():
            backend.plan(self.batch)
            return torch.stack(
                [backend.run(i, self.q[i], *self._new(i)) for i in range(NUM_LAYERS)]
            )

    def expected(self) -> Tensor:
        """float64, by the definition of attention, one query row at a time."""
        return torch.stack([self._expected(layer) for layer in range(NUM_LAYERS)])

    def stored(self) -> bool:
        """The step's keys and values are in the cache, and nothing beyond the contexts is."""
        slots = torch.cat([self.batch.context_slots(i) for i in range(len(self._contexts))])
        rows = self.kv.key_rows(slots.to(self.kv.device))
        for layer in range(NUM_LAYERS):
            wanted = torch.cat([context[layer] for context in self._contexts], dim=1)
            room = self.kv.gathered(len(rows))
            if not torch.equal(torch.stack(self.kv.gather(layer, rows, room)), wanted):
                return False
        num_stored = self.kv.pages.numel() - int(self.kv.pages.isnan().sum())
        return num_stored == sum(context.numel() for context in self._contexts)

    def _new(self, layer: int) -> tuple[Tensor, Tensor]:
        parts = [
            context[layer, :, -length:]
            for context, length in zip(self._contexts, self.batch.query_lengths, strict=True)
        ]
        keys, values = torch.cat(parts, dim=1)
        return keys, values

    def _expected(self, layer: int) -> Tensor:
        window = self.config.layer_windows[layer]
        rows: list[Tensor] = []
        for context, length in zip(self._contexts, self.batch.query_lengths, strict=True):
            keys, values = context[layer].double().repeat_interleave(self.config.num_groups, dim=2)
            total = len(keys)
            for end in range(total - length + 1, total + 1):
                seen = slice(0 if window is None else max(0, end - window), end)
                query = self.q[layer, len(rows)].double()
                scores = torch.einsum("hd,thd->ht", query, keys[seen])
                weights = (scores / self.config.head_dim**0.5).softmax(dim=1)
                rows.append(torch.einsum("ht,thd->hd", weights, values[seen]))
        return torch.stack(rows)

    def _batch(self, lengths: tuple[tuple[int, int], ...]) -> StepBatch:
        free = list(range(self.kv.num_pages))
        random.Random(0).shuffle(free)
        slices = []
        for num_before, num_new in lengths:
            total = num_before + num_new
            pages = [free.pop() for _ in range(self.kv.layout.num_pages(total))]
            sequence = Sequence(request(total), 0, pages, num_before)
            slices.append(Slice(sequence, num_new, (0,)))
        return StepBatch.of(slices, self.kv.layout.page_tokens, self.kv.device)

    def _fill(self, lengths: tuple[tuple[int, int], ...]) -> None:
        """What was computed before the step; all other memory stays NaN."""
        for i, (num_before, _) in enumerate(lengths):
            slots = self.batch.context_slots(i)[:num_before].to(self.kv.device)
            for layer in range(NUM_LAYERS):
                keys, values = self._contexts[i][layer, :, :num_before]
                self.kv.store(layer, self.kv.key_rows(slots), keys, values)


def _config(shape: Shape) -> ModelConfig:
    window: dict[str, Any] = {}
    if shape.window is not None:
        window = {
            "use_sliding_window": True,
            "sliding_window": shape.window,
            "layer_types": ["full_attention", "sliding_attention"],
        }
    return config_from_table(
        config_table(
            "Qwen3ForCausalLM",
            num_hidden_layers=NUM_LAYERS,
            num_attention_heads=shape.num_heads,
            num_key_value_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            **window,
        )
    )


def _cache(shape: Shape, num_pages: int, device: str) -> KvCache:
    layout = KvLayout(
        "m", NUM_LAYERS, shape.num_kv_heads, shape.head_dim, shape.page_tokens, shape.dtype
    )
    kv = KvCache(layout, num_pages + 3, torch.device(device))
    kv.pages.fill_(torch.nan)
    return kv
