"""``python -m pdengine.benchmark.schedules --model DIR``: every schedule on five workloads.

Schedules take turns within a repetition, in an order drawn anew. Timed: attention of all layers
with its planning, and whole decode steps. Contexts lie around the pool, whose memory no cache
holds; what its pages hold is of no account to the time.
"""

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from pdcore.errors import ConfigError, PdspanError
from pdcore.generation import GenerationRequest, RequestId, SamplingParams
from pdcore.settings import EngineSettings
from pdengine.attention.calibration import batch_of, seconds_of
from pdengine.attention.cpu import CpuAttention
from pdengine.attention.schedules import ADAPTIVE, FIXED, SCHEDULES
from pdengine.batch import Slice
from pdengine.engine import Engine
from pdengine.sequence import Sequence as TokenSequence

GREEDY = SamplingParams(seed=0, temperature=0.0)
MOST_TOKENS = 4096
EXAMPLE = """\
example:
  python -m pdengine.benchmark.schedules --model DIR --threads 2 --out schedules.json
"""


def workloads(seed: int = 0) -> Mapping[str, Sequence[Sequence[int]]]:
    """By name: batches, each the context lengths of one decode step."""
    rng = random.Random(seed)

    def zipf() -> int:
        """As likely as its length to the power of -1, from 16 to ``MOST_TOKENS``."""
        return round(16 * math.exp(math.log(MOST_TOKENS / 16) * rng.random()))

    bimodal = [rng.sample([MOST_TOKENS] * 2 + [128] * 6, 8) for _ in range(4)]
    return {
        "B8 bimodal": bimodal,
        "B8 uniform": [[rng.randint(16, MOST_TOKENS) for _ in range(8)] for _ in range(4)],
        "B8 zipf": [[zipf() for _ in range(8)] for _ in range(4)],
        "B1 bucketed": [[1024], [2048], [4096], [8000]],
        "B4 boundary": [[127, 128, 129, 1024], [511, 512, 513, 2048], [255, 256, 257, 4095]],
    }


@dataclass(frozen=True, slots=True)
class Cell:
    """Seconds of one repetition each, all batches of the workload together."""

    workload: str
    schedule: str
    attention_s: tuple[float, ...]
    step_s: tuple[float, ...]


class Bench:
    """One engine for each schedule, over the same weights and pages."""

    def __init__(self, engine: Engine, settings: EngineSettings) -> None:
        self._kv = engine.kv
        self._config = engine.config
        self._engines = {
            name: engine.with_settings(replace(settings, schedule=name)) for name in SCHEDULES
        }

    def run(self, repetitions: int, rng: random.Random, say: Callable[[str], None]) -> list[Cell]:
        """The first repetition warms up and is not kept."""
        attention: dict[tuple[str, str], list[float]] = {}
        steps: dict[tuple[str, str], list[float]] = {}
        for repetition in range(repetitions + 1):
            say(f"repetition {repetition} of {repetitions}")
            for workload, batches in workloads().items():
                for name in rng.sample(SCHEDULES, len(SCHEDULES)):
                    taken_s = (self.attention_s(name, batches), self.step_s(name, batches))
                    if repetition:
                        for kept, seconds in zip((attention, steps), taken_s, strict=True):
                            kept.setdefault((workload, name), []).append(seconds)
        return [
            Cell(workload, name, tuple(values), tuple(steps[workload, name]))
            for (workload, name), values in attention.items()
        ]

    @torch.inference_mode()
    def attention_s(self, schedule: str, batches: Sequence[Sequence[int]]) -> float:
        backend = self._engines[schedule].backend
        total_s = 0.0
        for lengths in batches:
            shape = (len(lengths), self._config.num_heads, self._config.head_dim)
            q = torch.randn(shape).to(self._kv.pages.dtype)
            k = q[:, : self._config.num_kv_heads].contiguous()
            batch = batch_of(lengths, self._kv)
            started = perf_counter()
            backend.plan(batch)
            for layer in range(self._config.num_layers):
                backend.run(layer, q, k, k)
            total_s += perf_counter() - started
        return total_s

    def step_s(self, schedule: str, batches: Sequence[Sequence[int]]) -> float:
        total_s = 0.0
        for lengths in batches:
            slices = [Slice(sequence, 1, (0,)) for sequence in self._sequences(lengths)]
            started = perf_counter()
            self._engines[schedule].run(slices)
            total_s += perf_counter() - started
        return total_s

    @torch.inference_mode()
    def read_shares(self, repetitions: int, num_tokens: int = 8192) -> list[float]:
        """Bytes a second that attention of one row reads, over those of plain reading."""
        words = self._kv.pages.view(torch.int64).flatten()
        backend = self._engines[ADAPTIVE].backend
        assert isinstance(backend, CpuAttention), "the settings name it"
        num_bytes = num_tokens * self._kv.layout.page_bytes // self._kv.layout.page_tokens
        shares = []
        for _ in range(repetitions):
            started = perf_counter()
            words[: num_bytes // 8].sum()
            plain_s = perf_counter() - started
            batch = batch_of([num_tokens], self._kv)
            attention_s = seconds_of(backend, batch, self._config, self._kv, trials=1)
            shares.append(plain_s / attention_s)
        return shares

    def _sequences(self, lengths: Sequence[int]) -> Iterator[TokenSequence]:
        pages = cycle(range(self._kv.num_pages))
        for length in lengths:
            request = GenerationRequest(RequestId("benchmark"), (1,) * length, GREEDY, 1)
            own = islice(pages, self._kv.layout.num_pages(length))
            yield TokenSequence(request, 0, own, length - 1)


def summary(cells: Sequence[Cell]) -> Iterator[str]:
    """Each workload: seconds of every schedule, and adaptive against the best fixed one."""
    for of in ("attention_s", "step_s"):
        yield "attention" if of == "attention_s" else "whole steps"
        for workload in dict.fromkeys(cell.workload for cell in cells):
            values = {c.schedule: getattr(c, of) for c in cells if c.workload == workload}
            best = min(FIXED, key=lambda name: median(values[name]))
            times = ", ".join(f"{name} {1e3 * median(values[name]):.2f}" for name in SCHEDULES)
            over_best, over_rows = (
                median(
                    theirs / ours
                    for theirs, ours in zip(values[rival], values[ADAPTIVE], strict=True)
                )
                for rival in (best, "per_row")
            )
            yield (
                f"  {workload}: {times} ms; adaptive over {best} {over_best:.3f}, over per_row"
                f" {over_rows:.3f}"
            )


def main() -> int:
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    settings = EngineSettings(
        dtype=arguments.dtype,
        attention="cpu",
        threads=arguments.threads,
        kv_memory_bytes=arguments.kv_bytes,
        prefix_cache=False,
    )
    say = partial(print, file=sys.stderr, flush=True)
    try:
        bench = Bench(Engine.load(arguments.model, settings), settings)
        cells = bench.run(arguments.repetitions, random.Random(arguments.seed), say)
        shares = bench.read_shares(arguments.repetitions)
    except PdspanError as error:
        print(f"pdengine.benchmark.schedules: error: {error.message}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    print("\n".join(summary(cells)))
    print(f"one row of 8192 tokens reads at {median(shares):.2f} of plain reading")
    if arguments.out is not None:
        record = {
            "threads": torch.get_num_threads(),
            "cells": [asdict(cell) for cell in cells],
            "read_shares": shares,
        }
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pdengine.benchmark.schedules",
        description="Time every attention schedule on five workloads.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="a checkpoint")
    parser.add_argument("--dtype", default="auto", help="as engine.dtype (default: auto)")
    parser.add_argument("--threads", type=int, metavar="N", help="default: as many as torch likes")
    parser.add_argument("--repetitions", type=int, default=30, metavar="N", help="default: 30")
    parser.add_argument("--kv-bytes", type=int, default=2**30, metavar="N", help="default: 1 GiB")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the order")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the record (JSON)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
