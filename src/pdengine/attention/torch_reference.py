"""Attention with torch alone: gather a context's rows, then ``scaled_dot_product_attention``.

Slices of one token (decode) run together in groups of similar length, padded; longer slices run one
by one. Padding repeats a context's last row and is masked, so nothing beyond a context is ever
read. The query heads of one KV head are folded into the query dimension: keys and values are read
once per KV head and never repeated in memory.
"""

import math
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pdengine.batch import StepBatch
from pdengine.config import ModelConfig
from pdengine.kv_cache import KvCache


@dataclass(frozen=True, slots=True)
class _Group:
    """Slices with the same number of query rows, ``query_rows`` [size, length] of the batch.

    ``key_rows`` [size * context]: where layer 0 keeps their keys. ``gathered``: room for one
    layer's keys and values. ``masks``: per window, 0 or -inf, [size, 1, groups * length, context].
    """

    query_rows: Tensor
    key_rows: Tensor
    gathered: Tensor
    masks: dict[int | None, Tensor]


class TorchReference:
    """Right on every device and dtype; the measure of all other backends."""

    def __init__(self, config: ModelConfig, kv: KvCache) -> None:
        self._config = config
        self._kv = kv
        self._store_rows = torch.empty(0, dtype=torch.int64)
        self._groups: list[_Group] = []

    def plan(self, batch: StepBatch) -> None:
        self._store_rows = self._kv.key_rows(batch.slots)
        self._groups = [self._group(batch, members) for members in _members(batch)]

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._kv.store(layer, self._store_rows, k, v)
        out = torch.empty_like(q)
        for group in self._groups:
            out[group.query_rows] = self._attend(layer, group, q[group.query_rows])
        return out

    def _attend(self, layer: int, group: _Group, q: Tensor) -> Tensor:
        """[size, length, num_heads, head_dim] in and out."""
        size, length, num_heads, head_dim = q.shape
        num_kv_heads = self._config.num_kv_heads
        keys, values = self._kv.gather(layer, group.key_rows, group.gathered)
        folded = q.view(size, length, num_kv_heads, -1, head_dim).permute(0, 2, 3, 1, 4)
        out = scaled_dot_product_attention(
            folded.reshape(size, num_kv_heads, -1, head_dim),
            keys.view(size, -1, num_kv_heads, head_dim).transpose(1, 2),
            values.view(size, -1, num_kv_heads, head_dim).transpose(1, 2),
            attn_mask=group.masks[self._config.layer_windows[layer]],
        )
        out = out.view(size, num_kv_heads, -1, length, head_dim).permute(0, 3, 1, 2, 4)
        return out.reshape(size, length, num_heads, head_dim)

    def _group(self, batch: StepBatch, members: list[int]) -> _Group:
        starts = [sum(batch.query_lengths[:i]) for i in members]
        length = batch.query_lengths[members[0]]
        contexts = torch.tensor([batch.context_lengths[i] for i in members])
        padded = int(contexts.max())
        slots = torch.stack([_padded(batch.context_slots(i), padded) for i in members])
        masks = {
            window: self._mask(contexts, length, padded, window).to(batch.device)
            for window in set(self._config.layer_windows)
        }
        return _Group(
            query_rows=(torch.tensor(starts)[:, None] + torch.arange(length)).to(batch.device),
            key_rows=self._kv.key_rows(slots.flatten().to(batch.device)),
            gathered=self._kv.gathered(slots.numel()),
            masks=masks,
        )

    def _mask(self, contexts: Tensor, length: int, padded: int, window: int | None) -> Tensor:
        keys = torch.arange(padded)
        queries = (contexts[:, None] - length + torch.arange(length))[:, :, None]
        seen = keys <= queries
        if window is not None:
            seen &= keys > queries - window
        mask = torch.zeros(seen.shape, dtype=self._kv.rows.dtype).masked_fill_(~seen, -math.inf)
        return mask.repeat(1, self._config.num_groups, 1)[:, None]


def _members(batch: StepBatch) -> list[list[int]]:
    """Slices of one token by the power of two above their context; each longer slice alone."""
    decode: defaultdict[int, list[int]] = defaultdict(list)
    alone: list[list[int]] = []
    for i, length in enumerate(batch.query_lengths):
        if length == 1:
            decode[batch.context_lengths[i].bit_length()].append(i)
        else:
            alone.append([i])
    return [*decode.values(), *alone]


def _padded(slots: Tensor, length: int) -> Tensor:
    """Repeat the last slot up to ``length``."""
    return torch.cat((slots, slots[-1:].expand(length - len(slots))))
