"""A parked stream's wait that ends just when its transfer is announced."""

import asyncio

import grpc
import pytest

from kvtransfer.framing import encode_push
from kvtransfer.handshake import PROTOCOL
from kvtransfer.messages import Extent, Opening
from kvtransfer.receiver import SERVICE, KvReceiver
from page_memory import RECEIVER, SENDER, TINY, PageMemory, Target
from pdcore.generation import TransferId
from pdcore.settings import TransferSettings

OPENING = Opening(SENDER, RECEIVER.epoch, PROTOCOL, TINY, "raw", Extent(12, 3, 1), stripe=0)


class OpenedStream:
    """As its servicer sees it: an opening, then nothing."""

    def __init__(self) -> None:
        self._messages = [encode_push(TransferId("t"), 0, OPENING)]

    async def read(self) -> object:
        if self._messages:
            return self._messages.pop()
        return await asyncio.get_running_loop().create_future()

    async def write(self, _: bytes) -> None: ...

    async def abort(self, *_: object, **__: object) -> None:
        raise grpc.aio.AbortError


class Handlers:
    """In place of a server: the servicer's methods, by name."""

    def add_generic_rpc_handlers(self, handlers: tuple[grpc.GenericRpcHandler, ...]) -> None:
        (self._handler,) = handlers

    def push(self, stream: OpenedStream) -> asyncio.Task[None]:
        details = _Details(f"/{SERVICE}/Push")
        return asyncio.ensure_future(self._handler.service(details).stream_stream(None, stream))


class _Details(grpc.HandlerCallDetails):
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()


@pytest.mark.parametrize("num_turns", range(6))  # of the loop, until the announcement
async def test_an_announcement_at_any_moment(num_turns: int) -> None:
    settings, handlers = TransferSettings(park_s=0.0), Handlers()
    receiver = KvReceiver(RECEIVER, TINY, PageMemory(TINY, 3), settings)
    receiver.add_to(handlers)
    push = handlers.push(OpenedStream())
    for _ in range(num_turns):
        await asyncio.sleep(0)
    async with receiver.expect(TransferId("t"), Target(12, range(3))):
        pass
    await asyncio.wait([push])
