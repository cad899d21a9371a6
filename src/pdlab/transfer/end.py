"""One end of the link as a process: answers the runner's requests until its input ends.

What both ends share is here: reading and answering lines, the pool, arms that stay open. Requests
are answered side by side, so that one move can run behind another. Standard output carries answers
and nothing else; what anything prints goes to standard error.
"""

import asyncio
import logging
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TextIO, TypeVar

import uvloop

from pdcore.allocator import keep_freed_memory
from pdcore.errors import PdspanError, PeerUnavailable, root_cause
from pdlab.transfer.messages import (
    LINE_BYTES,
    ArmOpened,
    CloseArm,
    Failed,
    Hello,
    Message,
    Number,
    Numbered,
    Started,
    from_line,
    to_line,
)
from pdlab.transfer.pool import Extent, Pool
from pdlab.transfer.usage import rss_bytes

log = logging.getLogger(__name__)

Half = TypeVar("Half")


class Side(Protocol):
    """What is particular to one end."""

    arms: "OpenArms[Any]"

    async def answer(self, request: Message) -> Message: ...


SideBuilder = Callable[[Pool, asyncio.TaskGroup], Side]


def run_end(seed: int, build: SideBuilder) -> None:
    """The process's whole life."""
    answers = _own_output()
    logging.basicConfig(level=logging.ERROR)  # that a baseline is slow is no news here
    arguments = _arguments()
    keep_freed_memory()  # as every node does, and for every arm alike
    pool = Pool(arguments.pool_bytes, seed)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(build, pool, answers))


def _arguments() -> Namespace:
    parser = ArgumentParser()
    parser.add_argument("--pool-bytes", type=int, required=True)
    return parser.parse_args()


def _own_output() -> TextIO:
    """Standard output for the answers alone; its old number leads to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


async def _serve(build: SideBuilder, pool: Pool, answers: TextIO) -> None:
    async with asyncio.TaskGroup() as tasks:
        side = build(pool, tasks)
        running: set[asyncio.Task[None]] = set()
        requests = await _requests()
        while line := await requests.readline():
            task = tasks.create_task(_reply(pool, side, line.decode(), answers))
            running.add(task)
            task.add_done_callback(running.discard)
        os._exit(0)  # the runner is gone: nothing that is still open has anyone to speak to


async def _requests() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(LINE_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    return reader


async def _reply(pool: Pool, side: Side, line: str, answers: TextIO) -> None:
    request_id, request = from_line(line)
    try:
        reply = await _answer(pool, side, request)
    except PdspanError as error:
        reply = Failed(type(error).__name__, error.message)
    except Exception as error:  # the runner names it; this end stays for the other arms
        log.exception("a defect while answering %s", type(request).__name__)
        reply = Failed("InternalError", f"{type(error).__name__}: {error}")
    answers.write(to_line(request_id, reply))
    answers.flush()


async def _answer(pool: Pool, side: Side, request: Message) -> Message:
    match request:
        case Hello():
            return Started(rss_bytes())
        case Number():
            pool.number(request.page_bytes)
            digests = pool.digests(Extent(0, request.num_digests))
            return Numbered(len(pool.page_table), digests)
        case CloseArm():
            await side.arms.close(request.arm)
            return ArmOpened()
        case _:
            return await side.answer(request)


@dataclass(slots=True)
class _Open(Generic[Half]):
    half: "asyncio.Future[Half]"
    closing: asyncio.Event
    task: "asyncio.Task[None]"


class OpenArms(Generic[Half]):
    """Arms that are open at this end. Each is held by a task, which enters and leaves it."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._open: dict[str, _Open[Half]] = {}

    def __getitem__(self, arm: str) -> Half:
        if arm not in self._open:
            raise PeerUnavailable(f"arm {arm!r} is not open at this end")
        return self._open[arm].half.result()

    async def open(self, arm: str, context: AbstractAsyncContextManager[Half]) -> Half:
        half: asyncio.Future[Half] = asyncio.get_running_loop().create_future()
        closing = asyncio.Event()
        task = self._tasks.create_task(self._hold(context, half, closing))
        opened = await half
        self._open[arm] = _Open(half, closing, task)
        return opened

    async def close(self, arm: str) -> None:
        opened = self._open.pop(arm)
        opened.closing.set()
        await opened.task

    async def _hold(
        self,
        context: AbstractAsyncContextManager[Half],
        half: "asyncio.Future[Half]",
        closing: asyncio.Event,
    ) -> None:
        try:
            async with context as opened:
                half.set_result(opened)
                await closing.wait()
        except (PdspanError, OSError) as error:
            _tell(half, error)
        except BaseExceptionGroup as group:
            _tell(half, root_cause(group))


def _tell(half: "asyncio.Future[Half]", error: Exception) -> None:
    """Whoever waits for the arm to open learns it; a defect of an open arm ends the process."""
    if half.done():
        raise error
    half.set_exception(error)
