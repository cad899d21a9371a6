"""A TCP relay between a test's client and its server, whose connections can be cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class TcpRelay:
    """``accepts`` False closes new connections at once. ``num_bytes`` counts what went upstream,
    ``num_accepted`` connections, those that are gone too."""

    def __init__(self, port: int, delay_s: float) -> None:
        self.accepts = True
        self.num_bytes = 0
        self.num_accepted = 0
        self.port = 0
        self._target_port = port
        self._delay_s = delay_s
        self._writers: dict[asyncio.StreamWriter, None] = {}  # oldest first
        self._passed = asyncio.Event()
        self._cut_after: int | None = None

    def cut(self) -> None:
        """Break every connection, both ends, without a goodbye."""
        for writer in list(self._writers):
            writer.transport.abort()

    def cut_newest(self) -> None:
        """Break the connection that was made last."""
        list(self._writers)[-1].transport.abort()

    async def cut_after(self, num_bytes: int) -> None:
        """Cut once so many more bytes have gone upstream."""
        self._cut_after = self.num_bytes + num_bytes
        self._passed.clear()
        await self._passed.wait()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.accepts:
            writer.transport.abort()
            return
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers |= {writer: None, up_writer: None}
        self.num_accepted += 1
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pipe(reader, up_writer, upstream=True))
                tasks.create_task(self._pipe(up_reader, writer, upstream=False))
        finally:
            del self._writers[writer], self._writers[up_writer]
            writer.transport.abort()
            up_writer.transport.abort()

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, upstream: bool
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if self._delay_s:
                    asyncio.get_running_loop().call_later(self._delay_s, _write, writer, data)
                else:
                    writer.write(data)
                    await writer.drain()
                if upstream:
                    self._count(len(data))
        writer.close()

    def _count(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes
        if self._cut_after is not None and self.num_bytes >= self._cut_after:
            self._cut_after = None
            self.cut()
            self._passed.set()


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.transport.is_closing():
        writer.write(data)


@asynccontextmanager
async def tcp_relay(port: int, delay_s: float = 0.0) -> AsyncIterator[TcpRelay]:
    """``delay_s``: how long it holds back what it takes, in each direction."""
    relay = TcpRelay(port, delay_s)
    server = await asyncio.start_server(relay.handle, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
