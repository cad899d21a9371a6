"""The process behind a link: started with file descriptors of ours, known by more than its number.

It is in a session of its own, so a terminal's Ctrl-C does not reach it before what uses the link
has ended. A process is a pid and the moment it started: a pid given again is another process.
"""

import os
import select
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    started_ticks: int
    """Since the machine's start, as the kernel counts."""

    @classmethod
    def with_pid(cls, pid: int) -> Self:
        """ProcessLookupError when there is none."""
        stat = _stat(pid)
        if stat is None:
            raise ProcessLookupError(pid)
        return cls(pid, stat.started_ticks)

    @property
    def alive(self) -> bool:
        stat = _stat(self.pid)
        return stat is not None and stat.started_ticks == self.started_ticks and stat.state != "Z"

    def end(self, grace_s: float = 2.0) -> None:
        """SIGTERM, and SIGKILL after ``grace_s``; returns when it has ended."""
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)
            try:
                if self.alive:
                    _end(handle, grace_s)
            finally:
                os.close(handle)
        with suppress(ChildProcessError):  # it need not be a child of this process
            os.waitpid(self.pid, 0)


def start_process(command: list[str], fds: Sequence[int], log_path: Path) -> Process:
    """Start ``command`` with ``fds`` under the same numbers, and its output in ``log_path``."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log_path), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    for fd in fds:
        os.set_inheritable(fd, True)
    try:
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=files, setsid=True)
    finally:
        for fd in fds:
            os.set_inheritable(fd, False)
    return Process.with_pid(pid)


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    started_ticks: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may contain anything
    return _Stat(fields[0], int(fields[19]))


def _end(handle: int, grace_s: float) -> None:
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, None)):
        signal.pidfd_send_signal(handle, number)
        if select.select([handle], [], [], patience_s)[0]:
            return
