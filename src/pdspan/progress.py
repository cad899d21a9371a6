"""Shows how far long work has come: bars on a terminal, a line per beginning and end elsewhere.

Everything goes to stderr, so that a command's result alone is on stdout.
"""

import sys
from contextlib import AbstractContextManager
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
    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._done: set[str] = set()

    def report(self, task: str, fraction: float) -> None:
        if task not in self._begun:
            self._begun.add(task)
            print(f"{task} ...", file=sys.stderr, flush=True)
        if fraction >= 1.0 and task not in self._done:
            self._done.add(task)
            print(f"{task}: done", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
