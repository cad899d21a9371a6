"""The attention backend of a CPU: slices of one token by a schedule, longer ones in tiles.

Plans are arrays of integers that the kernels read; one for each distinct window of the layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pdcore.errors import ConfigError
from pdengine.attention.adaptive import Adaptive
from pdengine.attention.calibration import costs_of
from pdengine.attention.schedules import ADAPTIVE, FIXED, Row, Schedule, View, Work
from pdengine.batch import StepBatch
from pdengine.config import ModelConfig
from pdengine.kernels.library import (
    ITEM_FIELDS,
    LANES,
    MAX_GROUPS,
    MAX_HEAD_DIM,
    MERGE_FIELDS,
    TILE_FIELDS,
    Layer,
    Plan,
    kernel,
    kernels,
    unavailable,
    version,
)
from pdengine.kv_cache import KvCache

Table = NDArray[np.int32]

DTYPES = ("float32", "bfloat16")


def unsupported(config: ModelConfig, kv: KvCache) -> str | None:
    """Why the kernels cannot serve this model here, or None. Compiles them."""
    if kv.device.type != "cpu":
        return f"it needs a CPU and the engine's device is {kv.device.type}"
    if kv.layout.dtype not in DTYPES:
        return f"engine.dtype is {kv.layout.dtype}; it takes {' or '.join(DTYPES)}"
    if config.head_dim % LANES or config.head_dim > MAX_HEAD_DIM:
        return (
            f"the model's head_dim is {config.head_dim}; it takes multiples of {LANES} up to"
            f" {MAX_HEAD_DIM}"
        )
    if config.num_groups > MAX_GROUPS:
        return f"{config.num_groups} query heads share a KV head; it takes up to {MAX_GROUPS}"
    return unavailable()


def build_cpu(config: ModelConfig, kv: KvCache, schedule: str) -> "CpuAttention":
    """``schedule`` is one of ``SCHEDULES``; adaptive measures the machine, unless that was done.
    Raises ConfigError where the kernels cannot serve the model."""
    reason = unsupported(config, kv)
    if reason is not None:
        raise ConfigError(f"engine.attention is 'cpu', but {reason}")
    if schedule != ADAPTIVE:
        return CpuAttention(config, kv, FIXED[schedule])

    def build(fixed: Schedule) -> CpuAttention:
        return CpuAttention(config, kv, fixed)

    return build(Adaptive(costs_of(build, config, kv, version())))


@dataclass(frozen=True, slots=True)
class _Work:
    """Of one window, and the memory that ``plan`` points into."""

    plan: Plan
    memory: tuple[Table | Tensor, ...]


class CpuAttention:
    """``plan`` fills ``tables``, ``key_rows`` (where each token's keys go in layer 0) and what
    ``plan_of`` gives, for whoever calls the kernels without ``run``."""

    def __init__(self, config: ModelConfig, kv: KvCache, schedule: Schedule) -> None:
        self.key_rows = torch.empty(0, dtype=torch.int64)
        self.tables: Table = np.empty((0, 0), dtype=np.int32)
        self._config = config
        self._kv = kv
        self._schedule = schedule
        self._attend = kernel("attend", kv.pages.dtype)
        self._tile_rows: int = kernels().pdspan_tile_rows()
        self._work: dict[int | None, _Work] = {}

    def plan(self, batch: StepBatch) -> None:
        self.key_rows = self._kv.key_rows(batch.slots)
        self.tables = _tables(batch)
        self._work = {
            window: self._work_of(batch, window) for window in set(self._config.layer_windows)
        }

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._kv.store(layer, self.key_rows, k, v)
        return self.attend(layer, q)

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """As ``run``, with keys and values that are in the cache already."""
        q = q.contiguous()
        out = torch.empty_like(q)
        self._attend(
            *(self.cache(layer), q.data_ptr(), self.tables.ctypes.data, self.tables.shape[1]),
            *(self.plan_of(self._config.layer_windows[layer]), torch.get_num_threads()),
            out.data_ptr(),
        )
        return out

    def plan_of(self, window: int | None) -> Plan:
        """Of the step planned last, for the layers of that window; valid until the next."""
        return self._work[window].plan

    @property
    def layer_stride(self) -> int:
        """Elements from a page's keys in one layer to those in the next."""
        return self._kv.pages.stride(1)

    def cache(self, layer: int) -> Layer:
        pages = self._kv.pages
        keys, values = self._kv.layer(layer)
        return Layer(
            keys=keys.data_ptr(),
            page_stride=pages.stride(0),
            token_stride=keys.stride(1),
            value_offset=(values.data_ptr() - keys.data_ptr()) // pages.element_size(),
            page_tokens=self._kv.layout.page_tokens,
            num_heads=self._config.num_heads,
            num_kv_heads=self._config.num_kv_heads,
            head_dim=self._config.head_dim,
            scale=self._config.head_dim**-0.5,
        )

    def _work_of(self, batch: StepBatch, window: int | None) -> _Work:
        starts = list(accumulate(batch.query_lengths, initial=0))
        rows = [
            Row(starts[i], i, 0 if window is None else max(0, context - window), context)
            for i, (length, context) in enumerate(
                zip(batch.query_lengths, batch.context_lengths, strict=True)
            )
            if length == 1
        ]
        view = View(rows, torch.get_num_threads())
        work = self._schedule(view) if rows else Work((), takes_turns=False)
        items, merges, num_partials = _items(work)
        tiles = _tiles(batch, starts, self._config.num_kv_heads, self._tile_rows)
        size = num_partials * self._config.num_heads * (self._config.head_dim + 2)
        partials = torch.empty(size)
        plan = Plan(
            items=items.ctypes.data,
            merges=merges.ctypes.data,
            tiles=tiles.ctypes.data,
            partials=partials.data_ptr(),
            num_items=len(items),
            num_merges=len(merges),
            num_tiles=len(tiles),
            window=window or 0,
            takes_turns=work.takes_turns,
        )
        return _Work(plan, (items, merges, tiles, partials))


def _tables(batch: StepBatch) -> Table:
    """Page tables side by side, the short ones filled with zeros."""
    longest = max(map(len, batch.page_tables))
    tables = np.zeros((len(batch.page_tables), longest), dtype=np.int32)
    for row, table in zip(tables, batch.page_tables, strict=True):
        row[: len(table)] = table
    return tables


def _items(work: Work) -> tuple[Table, Table, int]:
    """The pieces, what is to be merged, and how many partial results there are."""
    items: list[tuple[int, ...]] = []
    merges: list[tuple[int, ...]] = []
    num_partials = 0
    for row, group in groupby(work.pieces, key=lambda piece: piece.row.row):
        pieces = list(group)
        num_parts = sum(piece.first < piece.last for piece in pieces)
        is_cut, part = num_parts > 1, num_partials
        for piece in pieces:
            partial = part if is_cut else -1
            items.append((row, piece.row.table, piece.first, piece.last, partial))
            part += piece.first < piece.last
        if is_cut:
            end = num_partials + num_parts
            merges.append((row, num_partials, end))
            num_partials = end
    return _table(items, ITEM_FIELDS), _table(merges, MERGE_FIELDS), num_partials


def _tiles(batch: StepBatch, starts: list[int], num_kv_heads: int, tile_rows: int) -> Table:
    """The last tiles of a slice have the longest contexts: those are taken first."""
    tiles: list[tuple[int, ...]] = []
    for index, length in enumerate(batch.query_lengths):
        if length == 1:
            continue
        position = batch.context_lengths[index] - length
        for first in reversed(range(0, length, tile_rows)):
            num = min(tile_rows, length - first)
            tiles += [
                (index, head, starts[index] + first, num, position + first)
                for head in range(num_kv_heads)
            ]
    return _table(tiles, TILE_FIELDS)


def _table(rows: Sequence[tuple[int, ...]], num_fields: int) -> Table:
    return np.array(rows, dtype=np.int32).reshape(-1, num_fields)
