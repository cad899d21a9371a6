"""Shows how far long work has come: bars on a terminal, elsewhere a line now and then.

Everything goes to stderr, so that a command's result alone is on stdout.
"""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

LEAST_S = 10.0  # between two lines of one task that is not done


class ProgressDisplay(Protocol):
    def report(self, task: str, fraction: float) -> None:
        """``fraction`` of ``task`` is done, 0 to 1. A task begins when it is first named."""


def open_progress() -> AbstractContextManager[ProgressDisplay]:
    return BarDisplay() if sys.stderr.isatty() else LineDisplay()


class BarDisplay:
    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        self._bars = Progress(*columns, console=Console(stderr=True))
        self._tasks: dict[str, TaskID] = {}

    def report(self, task: str, fraction: float) -> None:
        if task not in self._tasks:
            self._tasks[task] = self._bars.add_task(task, total=1.0)
        self._bars.update(self._tasks[task], completed=fraction)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


class LineDisplay:
    """A line when a task begins, at each tenth of it but not more often than every ``LEAST_S``, and
    when it is done. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[str, _Line] = {}

    def report(self, task: str, fraction: float) -> None:
        last, now_s = self._last.get(task), self._clock()
        tenths = min(10, int(10 * fraction + 1e-9))
        if last is None:
            self._say(f"{task} ...", task, _Line(now_s, 0))
            last = self._last[task]
        if tenths == 10 and last.tenths < 10:
            self._say(f"{task}: done", task, _Line(now_s, 10))
        elif tenths > last.tenths and now_s - last.at_s >= LEAST_S:
            self._say(f"{task}: {10 * tenths} %", task, _Line(now_s, tenths))

    def _say(self, text: str, task: str, line: "_Line") -> None:
        print(text, file=sys.stderr, flush=True)
        self._last[task] = line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _Line:
    """What was last said of a task, and when."""

    at_s: float
    tenths: int
