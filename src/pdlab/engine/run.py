"""Every task by every engine, in blocks: a block holds each task, and in it each arm once, in an
order drawn anew. The first block warms up and is in no statistic.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from pdcore.errors import ConfigError
from pdlab.engine.arms import EngineArm, Running, Task, started
from pdlab.host import HostRecord, describe_commit, describe_host

Progress = Callable[[str, float], None]

TASKS: Mapping[str, Task] = {
    "prefill 2048": {"task": "prefill", "tokens": 2048},
    "decode 1 x 128": {"task": "decode", "batch": 1, "context": 128, "steps": 64},
    "decode 8 x 128": {"task": "decode", "batch": 8, "context": 128, "steps": 64},
    "decode 32 x 128": {"task": "decode", "batch": 32, "context": 128, "steps": 32},
    "decode 8 x 2048": {"task": "decode", "batch": 8, "context": 2048, "steps": 32},
}
FIRST_TOKEN = "first token of 2048"
FIRST_TOKEN_TASK: Mapping[str, Task] = {FIRST_TOKEN: {"task": "prefill", "tokens": 2048}}
READ: Task = {"task": "read"}


@dataclass(frozen=True, slots=True)
class EngineCell:
    """One arm at one task. ``tokens_per_s``: every repetition's. ``floor_share``: of the bytes that
    a step cannot but read over its time, the share of what plain reading reached in the same
    block; None where nothing of the kind was measured."""

    arm: str
    task: str
    tokens_per_s: tuple[float, ...]
    floor_share: tuple[float, ...] | None = None

    @property
    def median_tokens_per_s(self) -> float:
        return median(self.tokens_per_s)


@dataclass(frozen=True, slots=True)
class EngineRecord:
    scenario: str
    created: str
    commit: str
    host: HostRecord
    threads: int
    dtypes: Mapping[str, str]  # by arm
    cells: tuple[EngineCell, ...]


def measure(
    arms: Sequence[EngineArm],
    *,
    scenario: str,
    threads: int,
    repetitions: int,
    progress: Progress,
    tasks: Mapping[str, Task],
    seed: int = 0,
) -> EngineRecord:
    """Raises ConfigError or PeerUnavailable when an engine cannot be started or fails."""
    host, created = describe_host(), datetime.now(UTC).isoformat(timespec="seconds")
    with ExitStack() as stack:
        running = []
        for arm in arms:
            progress(f"loading {arm.name}", 0.0)
            running.append(stack.enter_context(started(arm)))
            progress(f"loading {arm.name}", 1.0)
        cells = _measured(running, tasks, repetitions, progress, random.Random(seed))
        dtypes = {arm.name: arm.dtype for arm in running}
    return EngineRecord(scenario, created, describe_commit(), host, threads, dtypes, cells)


def _measured(
    arms: Sequence[Running],
    tasks: Mapping[str, Task],
    repetitions: int,
    progress: Progress,
    rng: random.Random,
) -> tuple[EngineCell, ...]:
    rates: dict[tuple[str, str], list[float]] = {}
    shares: dict[tuple[str, str], list[float]] = {}
    for block in range(repetitions + 1):
        for index, (name, task) in enumerate(tasks.items()):
            progress("tasks", (block + index / len(tasks)) / (repetitions + 1))
            asked = [arm for arm in arms if name in arm.tasks]
            for arm in rng.sample(asked, len(asked)):
                answer = arm.ask(task)
                if block == 0:
                    continue
                seconds = _number(arm, answer, "seconds")
                rates.setdefault((arm.name, name), []).append(
                    _number(arm, answer, "tokens") / seconds
                )
                if "step_bytes" in answer:
                    read = arm.ask(READ)
                    rate = _number(arm, read, "tokens") / _number(arm, read, "seconds")
                    step_s = seconds / int(task["steps"])
                    share = _number(arm, answer, "step_bytes") / step_s / rate
                    shares.setdefault((arm.name, name), []).append(share)
    progress("tasks", 1.0)
    return tuple(
        EngineCell(arm, name, tuple(values), tuple(shares.get((arm, name), ())) or None)
        for (arm, name), values in rates.items()
    )


def _number(arm: Running, answer: Mapping[str, object], key: str) -> float:
    value = answer.get(key)
    if not isinstance(value, int | float) or value <= 0:
        raise ConfigError(f"{arm.name}: answered {key} {value!r}; expected a number above 0")
    return float(value)
