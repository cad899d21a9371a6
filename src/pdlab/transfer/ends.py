"""The runner's side of the two ends: processes inside the link's hosts, asked and answered by line.

    async with open_ends(link, pool_bytes, programs) as ends:
        answer = await ends.sender.ask(request)

An end that says nothing within its time, or ends early, is one named error. Leaving the block ends
both processes, whatever they are doing.
"""

import asyncio
import os
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from pdcore.errors import InternalError, PeerUnavailable, error_named
from pdlab.link import Host, Link
from pdlab.transfer.messages import LINE_BYTES, Failed, Hello, Message, Started, from_line, to_line

START_S = 60.0  # filling a pool of some GB takes seconds
LEAVE_S = 2.0

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Program:
    """How the two ends are started; their input, output and arguments are alike."""

    sender: Sequence[str]
    receiver: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class End:
    """One process. Requests may overlap; each waits for its own answer."""

    def __init__(self, name: str, host: Host, process: asyncio.subprocess.Process) -> None:
        self.host = host
        self._name = name
        self._process = process
        self._ids = count()
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._has_ended = False

    async def ask(self, request: Message, answer: type[M], within_s: float) -> M:
        """Raises the end's own error, or PeerUnavailable when no answer comes in time."""
        assert self._process.stdin is not None
        if self._has_ended:
            raise self._ended()
        request_id = next(self._ids)
        waiting = self._answers[request_id] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(to_line(request_id, request).encode())
        what = type(request).__name__
        try:
            async with asyncio.timeout(within_s):
                reply = await waiting
        except TimeoutError:
            raise PeerUnavailable(f"{self._name}: no answer to {what} in {within_s:g} s") from None
        finally:
            del self._answers[request_id]
        if isinstance(reply, Failed):
            raise error_named(reply.error, f"{self._name}: {reply.message}")
        if not isinstance(reply, answer):
            raise InternalError(f"{self._name} answered {what} with {type(reply).__name__}")
        return reply

    async def read_answers(self) -> None:
        """Until the process ends; whoever still waits then is told so."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            request_id, reply = from_line(line.decode())
            waiting = self._answers.get(request_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(reply)
        self._has_ended = True
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(self._ended())

    def _ended(self) -> PeerUnavailable:
        return PeerUnavailable(f"the {self._name} ended early; see its message above")

    async def leave(self) -> None:
        """Its input ends, then it does; it is killed when it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@dataclass(frozen=True, slots=True)
class Ends:
    """Pages go from ``sender``, in the link's host a, to ``receiver`` in b."""

    sender: End
    receiver: End
    rss_bytes: int  # of both, before any page moved


@asynccontextmanager
async def open_ends(link: Link, pool_bytes: int, program: Program) -> AsyncIterator[Ends]:
    async with asyncio.TaskGroup() as tasks:
        ends: list[End] = []
        try:
            for name, host, command in (
                ("sender", link.a, program.sender),
                ("receiver", link.b, program.receiver),
            ):
                end = await _start(name, host, [*command, "--pool-bytes", str(pool_bytes)], program)
                ends.append(end)
                tasks.create_task(end.read_answers())
            started = [await end.ask(Hello(), Started, START_S) for end in ends]
            sender, receiver = ends
            yield Ends(sender, receiver, sum(answer.rss_bytes for answer in started))
        finally:
            for end in ends:
                await end.leave()


async def _start(name: str, host: Host, command: Sequence[str], program: Program) -> End:
    argv = host.command(*command)
    environment = {**os.environ, **program.environment}
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=PIPE, stdout=PIPE, limit=LINE_BYTES, env=environment
    )
    return End(name, host, process)
