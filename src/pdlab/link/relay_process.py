"""The relay as a process: ``python -m pdlab.link.relay_process LISTENER_FD [LIFELINE_FD]``.

Says and understands on its unix socket what the forwarder does (``forwarder/main.c``), but for
counters, and ``relay a_to_b|b_to_a PORT``: the port under which the other side now reaches ``PORT``
of this machine. Ends when the lifeline is closed, or on SIGTERM.
"""

import asyncio
import random
import selectors
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from pdlab.link.loopback import ADDRESS
from pdlab.link.profile import PAYLOAD_SHARE

CHUNK_BYTES = 2**16
NS_PER_S = 1e9


class Path:
    """One way for all connections: a line with a rate, then a delay. ``now_s`` is an argument."""

    def __init__(self) -> None:
        self.delay_s = self.jitter_s = self.rate_bps = 0.0
        self.in_flight_bytes = CHUNK_BYTES
        self._passes = asyncio.Event()
        self._passes.set()
        self._heals: asyncio.TimerHandle | None = None
        self._line_free_s = 0.0

    def set(self, delay_s: float, jitter_s: float, rate_bps: float, queue_bytes: int) -> None:
        self.delay_s, self.jitter_s, self.rate_bps = delay_s, jitter_s, rate_bps
        self.in_flight_bytes = round(queue_bytes + rate_bps / 8 * delay_s)

    def cut(self, seconds: float) -> None:
        """Hold everything up for so long from now, whatever was said before."""
        if self._heals is not None:
            self._heals.cancel()
        self._passes.clear()
        self._heals = asyncio.get_running_loop().call_later(seconds, self._passes.set)

    async def passes(self) -> None:
        """Returns once no cut holds bytes up."""
        await self._passes.wait()

    def due_s(self, num_bytes: int, *, now_s: float) -> float:
        """When a chunk that is there at ``now_s`` reaches the other side."""
        self._line_free_s = max(self._line_free_s, now_s)
        if self.rate_bps:
            self._line_free_s += num_bytes * 8 / (self.rate_bps * PAYLOAD_SHARE)
        return self._line_free_s + self.delay_s + random.uniform(0, self.jitter_s)


class Pipe:
    """One way of one connection: reads while there is room, writes what is due, in order."""

    def __init__(
        self, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._path, self._reader, self._writer = path, reader, writer
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._num_bytes = 0
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        """Until the reader's end, passed on; ConnectionError when either side breaks."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._write())

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        chunk = b"more"
        while chunk:
            async with self._changed:
                await self._changed.wait_for(self._has_room)
            chunk = await self._reader.read(CHUNK_BYTES)
            due_s = self._path.due_s(len(chunk), now_s=loop.time())
            async with self._changed:
                self._chunks.append((due_s, chunk))
                self._num_bytes += len(chunk)
                self._changed.notify_all()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._chunks)
            due_s, chunk = self._chunks[0]
            await asyncio.sleep(due_s - loop.time())
            await self._path.passes()
            if not chunk:
                self._writer.write_eof()
                return
            self._writer.write(chunk)
            await self._writer.drain()
            async with self._changed:
                self._chunks.popleft()
                self._num_bytes -= len(chunk)
                self._changed.notify_all()

    def _has_room(self) -> bool:
        return self._num_bytes < self._path.in_flight_bytes


class Relay:
    def __init__(self) -> None:
        self._paths = {"a_to_b": Path(), "b_to_a": Path()}
        self._ports: dict[tuple[str, int], asyncio.Server] = {}

    async def answer(self, line: str) -> str:
        match line.split():
            case ["profile", delay_ns, jitter_ns, rate_bps, _, queue_bytes]:
                for path in self._paths.values():
                    path.set(
                        int(delay_ns) / NS_PER_S,
                        int(jitter_ns) / NS_PER_S,
                        float(rate_bps),
                        int(queue_bytes),
                    )
                return "ok"
            case ["cut", for_ns]:
                for path in self._paths.values():
                    path.cut(int(for_ns) / NS_PER_S)
                return "ok"
            case ["relay", way, port] if way in self._paths:
                return str(await self._port(way, int(port)))
            case _:
                return "error: not a command"

    async def _port(self, way: str, target_port: int) -> int:
        if (way, target_port) not in self._ports:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._connect(way, target_port, reader, writer)

            self._ports[way, target_port] = await asyncio.start_server(serve, ADDRESS, 0)
        return int(self._ports[way, target_port].sockets[0].getsockname()[1])

    async def _connect(
        self,
        way: str,
        target_port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        forth = self._paths[way]
        back = self._paths["b_to_a" if way == "a_to_b" else "a_to_b"]
        async with _ended(writer):
            far_reader, far_writer = await asyncio.open_connection(ADDRESS, target_port)
            async with _ended(far_writer), asyncio.TaskGroup() as tasks:
                tasks.create_task(Pipe(forth, reader, far_writer).run())
                tasks.create_task(Pipe(back, far_reader, writer).run())


@asynccontextmanager
async def _ended(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """What is left to write is written; when the other side broke, this side breaks too."""
    try:
        yield
        writer.close()
    except* OSError:
        writer.transport.abort()


async def _serve(control: socket.socket, lifeline: int | None) -> None:
    relay = Relay()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            line = (await reader.readline()).decode(errors="replace")
            writer.write(f"{await relay.answer(line)}\n".encode())
            writer.close()

    over = asyncio.Event()
    if lifeline is not None:
        asyncio.get_running_loop().add_reader(lifeline, over.set)
    async with await asyncio.start_unix_server(serve, sock=control):
        await over.wait()


def main(listener_fd: str, lifeline_fd: str | None = None) -> None:
    # select() keeps microseconds of a timeout; the default, epoll, rounds them to milliseconds.
    loop_factory = lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())  # noqa: E731
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        control = socket.socket(fileno=int(listener_fd))
        runner.run(_serve(control, int(lifeline_fd) if lifeline_fd else None))


if __name__ == "__main__":
    main(*sys.argv[1:])
