"""What the cost model of ``adaptive`` knows of a machine: measured at the first start, then kept.

A few batches are decoded over all layers, each so that one of the costs weighs most. The pool's own
pages are read, whatever they hold.
"""

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from hashlib import sha256
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor

from pdcore.cache import cache_dir
from pdcore.errors import ConfigError
from pdcore.typed_table import read_table
from pdengine.attention.adaptive import Costs
from pdengine.attention.schedules import Schedule, View, Work, cut, per_row, whole
from pdengine.batch import StepBatch
from pdengine.config import ModelConfig
from pdengine.kv_cache import KvCache

log = logging.getLogger(__name__)

VERSION = 2  # of what is measured
LONG_TOKENS = 4096
NUM_SHORT = 256  # rows of one token, for each worker; of all workers at most MOST_SHORT
MOST_SHORT = 8192
NUM_PARTS = 64
TRIALS = 5


class Reader(Protocol):
    """An attention backend that can attend without writing."""

    def plan(self, batch: StepBatch) -> None: ...

    def attend(self, layer: int, q: Tensor) -> Tensor: ...


Build = Callable[[Schedule], Reader]


def costs_of(build: Build, config: ModelConfig, kv: KvCache, kernels: str) -> Costs:
    """Those kept from an earlier start with the same ``kernels``, pages and threads, else
    measured now, in a second or so."""
    path = _path(config, kv, kernels)
    kept = _kept(path)
    if kept is not None:
        return kept
    costs = measured(build, config, kv)
    log.info("measured what attention costs here: %s", costs)
    _keep(path, costs)
    return costs


def measured(build: Build, config: ModelConfig, kv: KvCache) -> Costs:
    num_workers = torch.get_num_threads()

    def took_s(lengths: Sequence[int], schedule: Schedule = per_row) -> float:
        """Of one layer, the least of some trials over all of them."""
        return seconds_of(build(schedule), batch_of(lengths, kv), config, kv) / config.num_layers

    windows = [window for window in config.layer_windows if window is not None]
    long = min(LONG_TOKENS, kv.num_pages * kv.layout.page_tokens, *windows)
    empty_s = took_s([1])
    num_short = max(1, min(NUM_SHORT, MOST_SHORT // num_workers))
    piece_s = (took_s([1] * num_workers * num_short) - empty_s) / num_short
    all_s, alone_s = took_s([long] * num_workers), took_s([long])
    parts_s = took_s([long], _in_parts) - took_s([long], _in_halves)
    barrier_s = took_s([2 * num_workers], _in_halves) - empty_s
    return Costs(
        token_s=max(0.0, all_s - empty_s) / long,
        alone_token_s=max(0.0, alone_s - empty_s) / long,
        piece_s=max(0.0, piece_s),
        part_s=max(0.0, num_workers * parts_s / NUM_PARTS - piece_s),
        barrier_s=max(0.0, barrier_s),
    )


def batch_of(lengths: Sequence[int], kv: KvCache) -> StepBatch:
    """A decode step of rows of these lengths, their pages one after the other around the pool."""
    page_tokens = kv.layout.page_tokens
    numbers = cycle(range(kv.num_pages))
    tables = [tuple(islice(numbers, -(-length // page_tokens))) for length in lengths]
    slots = [
        table[-1] * page_tokens + (length - 1) % page_tokens
        for table, length in zip(tables, lengths, strict=True)
    ]
    return StepBatch(
        token_ids=torch.zeros(len(lengths), dtype=torch.int64),
        positions=torch.tensor(lengths) - 1,
        slots=torch.tensor(slots),
        query_lengths=(1,) * len(lengths),
        context_lengths=tuple(lengths),
        page_tables=tuple(tables),
        page_tokens=page_tokens,
    )


@torch.inference_mode()
def seconds_of(
    backend: Reader, batch: StepBatch, config: ModelConfig, kv: KvCache, trials: int = TRIALS
) -> float:
    """Attention of all layers, planning not counted; the least of ``trials``, after one more."""
    rows = len(batch.query_lengths)
    q = torch.randn(rows, config.num_heads, config.head_dim).to(kv.pages.dtype)
    backend.plan(batch)
    least = float("inf")
    for trial in range(trials + 1):
        started = perf_counter()
        for layer in range(config.num_layers):
            backend.attend(layer, q)
        if trial:
            least = min(least, perf_counter() - started)
    return least


def _in_parts(view: View) -> Work:
    return _cut(view, NUM_PARTS)


def _in_halves(view: View) -> Work:
    """One part for each worker."""
    return _cut(view, view.num_workers)


def _cut(view: View, num: int) -> Work:
    parts = [cut(whole(row), -(-row.num_tokens // num)) for row in view.rows]
    return Work([piece for pieces in parts for piece in pieces], takes_turns=False)


def _path(config: ModelConfig, kv: KvCache, kernels: str) -> Path:
    layout = kv.layout
    shape = (config.num_heads, layout.num_kv_heads, layout.head_dim, layout.num_layers)
    what = (VERSION, kernels, torch.get_num_threads(), layout.dtype, layout.page_tokens, shape)
    name = sha256(repr((*what, torch.__version__)).encode()).hexdigest()[:16]
    return cache_dir() / "attention" / f"{name}.json"


def _kept(path: Path) -> Costs | None:
    try:
        return read_table(Costs, json.loads(path.read_text()), str(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ConfigError) as error:
        log.warning("measured anew, since %s cannot be used: %s", path, error)
        return None


def _keep(path: Path, costs: Costs) -> None:
    """Several processes may do so at once; who cannot, measures again at the next start."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(json.dumps(asdict(costs)))
        draft.replace(path)
    except OSError as error:
        log.warning("what was measured is not kept: %s", error)
