"""``python -m decode_node.benchmark --model DIR --trace FILE``: what admission costs or brings.

The requests of a trace, all there from the beginning, go through the decode loop of one node with a
real model: each is admitted, in order, as soon as there is room for it by the admission in force,
prefilled here, and ended by a stop after ``output_length`` tokens, which only ``max_tokens`` bounds
in advance. Runs of the admissions take turns. One JSON object a run on standard output.
"""

import argparse
import asyncio
import json
import random
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import monotonic

from decode_node.group import Group
from decode_node.loop import DecodeLoop
from decode_node.reservations import ADMISSIONS, take_for_prompt
from pdcore.compute import ComputeThread
from pdcore.errors import ConfigError, InternalError, NoCapacity, PdspanError
from pdcore.generation import GenerationRequest, RequestId, SamplingParams
from pdcore.metrics import KvUse, NodeMetrics
from pdcore.node_server import background
from pdcore.settings import EngineSettings
from pdcore.typed_table import read_table
from pdengine.engine import Engine

SAMPLE_S = 0.02
GREEDY = SamplingParams(seed=0, temperature=0.0)
EXAMPLE = """\
example:
  python -m decode_node.benchmark --model DIR --trace deploy/traces/mixed_lengths.jsonl --pages 512
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """Of one request. It turns out to be ``output_length`` tokens long, which nobody knows."""

    input_length: int
    output_length: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """``waste``: of the memory that was set aside for sequences, the share that held no KV, over
    the time of the run; ``mean_running``: sequences that had pages."""

    admission: str
    repetition: int
    seconds: float
    output_tokens: int
    tokens_per_s: float
    waste: float
    mean_running: float
    preemptions: int


class Run:
    """One trace under one admission."""

    def __init__(
        self, engine: Engine, compute: ComputeThread, settings: EngineSettings, admission: str
    ) -> None:
        self._engine = engine
        self._admission = ADMISSIONS[admission]
        self._metrics = NodeMetrics()
        self._loop = DecodeLoop(engine, compute, settings, self._metrics)
        self._uses: list[KvUse] = []
        self._running: list[int] = []

    async def serve(self, requests: Sequence[tuple[GenerationRequest, int]]) -> None:
        """Until the last one has ended."""
        waiting = deque(requests)
        followers: set[asyncio.Task[None]] = set()
        async with background(self._loop.run()), self._sampling(), asyncio.TaskGroup() as tasks:
            while waiting or followers:
                while waiting and (group := self._admitted(waiting[0][0])) is not None:
                    _, output_length = waiting.popleft()
                    followers.add(tasks.create_task(self._follow(group, output_length)))
                if not followers:
                    raise InternalError("nothing runs, and still there is no room")
                _, followers = await asyncio.wait(followers, return_when=asyncio.FIRST_COMPLETED)

    def waste(self) -> float:
        reserved = sum(use.reserved_tokens for use in self._uses)
        return 1 - sum(use.live_tokens for use in self._uses) / max(1, reserved)

    def mean_running(self) -> float:
        return sum(self._running) / max(1, len(self._running))

    def num_preemptions(self) -> int:
        return int(self._metrics.registry.get_sample_value("pdspan_preemptions_total") or 0)

    def _admitted(self, request: GenerationRequest) -> Group | None:
        """None while there is no room: as ``Generate``, nobody passes those that were preempted."""
        if self._loop.num_preempted:
            return None
        engine = self._engine
        try:
            room = take_for_prompt(
                engine.pool, engine.prefix, engine.layout, request, self._admission
            )
        except NoCapacity:
            return None
        group = Group(request)
        self._loop.join_prompt(group, room)
        return group

    async def _follow(self, group: Group, output_length: int) -> None:
        num_tokens = 0
        async for deltas in group.deltas():
            num_tokens += sum(len(delta.token_ids) for delta in deltas)
            if num_tokens >= output_length:
                self._loop.stop_choice(group, 0)
        self._loop.leave(group)

    @asynccontextmanager
    async def _sampling(self) -> AsyncIterator[None]:
        async def sample() -> None:
            while True:
                self._uses.append(self._loop.kv_use())
                self._running.append(self._loop.num_running)
                await asyncio.sleep(SAMPLE_S)

        async with background(sample()):
            yield


def read_trace(path: Path) -> list[Asked]:
    """Raises ConfigError: which line is wrong, and what would be right."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    asked = [_asked(line, f"{path}: line {number}") for number, line in enumerate(lines, start=1)]
    if not asked:
        raise ConfigError(f"{path}: no request in it")
    return asked


def _asked(line: str, where: str) -> Asked:
    try:
        table = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    asked = read_table(Asked, table, where)
    if not 0 < asked.output_length <= asked.max_tokens or asked.input_length < 1:
        raise ConfigError(
            f"{where}: 0 < output_length <= max_tokens and 0 < input_length must hold"
        )
    return asked


def _requests(
    trace: Sequence[Asked], vocab_size: int, seed: int
) -> list[tuple[GenerationRequest, int]]:
    rng = random.Random(seed)
    return [
        (
            GenerationRequest(
                RequestId(f"r{number}"),
                tuple(rng.choices(range(vocab_size), k=asked.input_length)),
                GREEDY,
                asked.max_tokens,
            ),
            asked.output_length,
        )
        for number, asked in enumerate(trace)
    ]


async def _measure(arguments: argparse.Namespace) -> None:
    trace = read_trace(arguments.trace)
    settings = EngineSettings(
        threads=arguments.threads,
        num_pages=arguments.pages,
        prefix_cache=False,
    )
    outcomes: list[Outcome] = []
    with ComputeThread() as compute:
        engine = await compute.run(Engine.load, arguments.model, settings, None)
        requests = _requests(trace, engine.config.vocab_size, arguments.seed)
        for request, _ in requests:
            engine.check(request)
        order = random.Random(arguments.seed)
        for repetition in range(arguments.repetitions):
            for admission in order.sample(sorted(ADMISSIONS), len(ADMISSIONS)):
                run = Run(engine, compute, settings, admission)
                started_s = monotonic()
                await run.serve(requests)
                seconds = monotonic() - started_s
                engine.pool.check()
                num_tokens = sum(output_length for _, output_length in requests)
                outcome = Outcome(
                    admission,
                    repetition,
                    round(seconds, 3),
                    num_tokens,
                    round(num_tokens / seconds, 2),
                    round(run.waste(), 4),
                    round(run.mean_running(), 2),
                    run.num_preemptions(),
                )
                outcomes.append(outcome)
                print(json.dumps(asdict(outcome)), flush=True)
    print(_summary(outcomes), file=sys.stderr)


def _summary(outcomes: Sequence[Outcome]) -> str:
    """The effect, over pairs of runs of one repetition."""

    def of(admission: str) -> list[Outcome]:
        return [outcome for outcome in outcomes if outcome.admission == admission]

    ours, baseline = of("on_demand"), of("reserve_max")
    ratios = [a.tokens_per_s / b.tokens_per_s for a, b in zip(ours, baseline, strict=True)]
    wastes = [100 * median(outcome.waste for outcome in group) for group in (ours, baseline)]
    return (
        f"on_demand over reserve_max: {median(ratios):.2f}x tokens/s ({min(ratios):.2f} to"
        f" {max(ratios):.2f}, {len(ratios)} pairs); waste {wastes[0]:.1f} % against"
        f" {wastes[1]:.1f} %"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m decode_node.benchmark",
        description="Run a trace through one node's decode loop, by each admission in turn.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="a checkpoint")
    parser.add_argument(
        "--trace",
        type=Path,
        required=True,
        metavar="FILE",
        help="JSON lines: input_length, output_length, max_tokens",
    )
    parser.add_argument("--pages", type=int, default=512, metavar="N", help="KV pages (512)")
    parser.add_argument("--threads", type=int, metavar="N", help="default: as many as torch likes")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default: 5")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of prompts and order")
    arguments = parser.parse_args()
    if arguments.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    try:
        asyncio.run(_measure(arguments))
    except PdspanError as error:
        print(f"decode_node.benchmark: error: {error.message}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
