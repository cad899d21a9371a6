"""A TCP relay on loopback that holds every byte back for a while, in both directions."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class DelayRelay:
    """``delay_s`` each way; it may be changed while connections live."""

    def __init__(self, target: str, delay_s: float) -> None:
        self.delay_s = delay_s
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        async with asyncio.TaskGroup() as tasks:
            for source, target in ((reader, far_writer), (far_reader, writer)):
                held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
                tasks.create_task(self._read(source, held))
                tasks.create_task(_write(held, target))

    async def _read(
        self, source: asyncio.StreamReader, held: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        loop = asyncio.get_running_loop()
        data = b"more"
        while data:
            with suppress(ConnectionError):
                data = await source.read(2**16)
            held.put_nowait((loop.time() + self.delay_s, data))


async def _write(held: asyncio.Queue[tuple[float, bytes]], target: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s, data = await held.get()
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        if not data:
            target.close()
            return
        with suppress(ConnectionError):
            target.write(data)
            await target.drain()


@contextmanager
def delay_relay(target: str, delay_s: float, port: int) -> Iterator[DelayRelay]:
    """Runs on a thread of its own, listening on 127.0.0.1:``port``, until the block is left."""
    relay = DelayRelay(target, delay_s)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(
        asyncio.start_server(relay.handle, "127.0.0.1", port), loop
    ).result()
    try:
        yield relay
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
