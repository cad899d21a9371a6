"""A node as a child process of ``pdspan up``: started, its log kept, its progress heard, stopped.

Its output goes through a pipe to its log file, so that progress and last words are seen without
reading the file again. A child is in a process group of its own (a terminal's Ctrl-C reaches ``up``
alone) and dies with ``up``.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from pdcore.settings import NodeSettings

OnProgress = Callable[[str, float], None]
NUM_LAST_LINES = 12


class Child:
    def __init__(self, node: NodeSettings, log_path: Path, process: Process) -> None:
        self.node = node
        self.log_path = log_path
        self.pid = process.pid
        self._process = process
        self._last_lines: deque[str] = deque(maxlen=NUM_LAST_LINES)

    @classmethod
    async def start(cls, node: NodeSettings, command: Sequence[str], log_path: Path) -> Self:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, process_group=0
        )
        return cls(node, log_path, process)

    async def run(self, on_progress: OnProgress) -> int:
        """Keep the log until the process ends; its exit status (negative: the signal's number)."""
        assert self._process.stdout is not None
        rest = b""
        with self.log_path.open("ab", buffering=0) as log:
            while chunk := await self._process.stdout.read(2**16):
                log.write(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._hear(line.decode(errors="replace"), on_progress)
        return await self._process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """To the whole process group; nothing happens when it has ended."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and was not waited for yet
                os.killpg(self.pid, number)

    def last_lines(self) -> list[str]:
        return list(self._last_lines)

    def _hear(self, line: str, on_progress: OnProgress) -> None:
        record = _record(line)
        match record:
            case {"event": "load", "stage": str(stage), "fraction": int() | float() as fraction}:
                on_progress(f"{self.node.name}: {stage}", float(fraction))
            case _:
                self._last_lines.extend(_readable(record, line))


def node_command(node: NodeSettings, cluster_file: Path) -> list[str]:
    """How ``node`` is started as a child of this process."""
    command = [sys.executable, "-m", "pdspan", node.role.value, "--node", node.name]
    return [*command, "--cluster", str(cluster_file), "--parent-pid", str(os.getpid())]


async def stop_children(
    children: Sequence[Child],
    ends: Sequence[asyncio.Task[int]],
    grace_s: float,
    hurry: asyncio.Event,
) -> None:
    """SIGTERM to all; SIGKILL to those that still run after ``grace_s``, or once ``hurry`` is set.

    ``ends`` are the children's ``run``, still running: a stopping node's log is kept too.
    """
    for child in children:
        child.send_signal(signal.SIGTERM)
    async with asyncio.TaskGroup() as tasks:
        hurried = tasks.create_task(hurry.wait())
        all_ended = tasks.create_task(_wait_for(ends))
        done, _ = await asyncio.wait(
            {hurried, all_ended}, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED
        )
        if all_ended not in done:
            for child in children:
                child.send_signal(signal.SIGKILL)
        hurried.cancel()


async def _wait_for(ends: Sequence[asyncio.Task[int]]) -> None:
    await asyncio.wait(ends)


def status_text(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _record(line: str) -> dict[str, object]:
    """A structured log line; anything else is empty."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _readable(record: dict[str, object], line: str) -> list[str]:
    if "message" not in record:
        return [line]
    text = f"{record.get('time', '')} {record.get('level', '')} {record['message']}"
    return [text, *str(record.get("traceback", "")).splitlines()]
