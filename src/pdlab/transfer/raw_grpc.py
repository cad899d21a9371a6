"""The second yardstick: the same frames over one bare gRPC stream, bytes passed through.

No checksum, no commit, no credit: frames of the size that ``auto`` sends, in order, and at the end
the number of bytes that arrived. What the product adds to gRPC is the difference to this.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from kvtransfer.limits import limits_for
from pdcore.cluster import NodeRole
from pdcore.errors import PeerUnavailable
from pdcore.rpc import bind_server, new_server, open_channel
from pdcore.settings import NodeSettings, TlsSettings
from pdlab.transfer.arm import Arm, Place
from pdlab.transfer.messages import Move, Peer
from pdlab.transfer.pool import Extent, Pool
from pdlab.transfer.ports import free_address

SERVICE = "pdlab.Raw"
METHOD = f"/{SERVICE}/Send"

Context = grpc.aio.ServicerContext[bytes, bytes]


def raw_grpc_arm() -> Arm:
    return Arm(_sending, _receiving)


@asynccontextmanager
async def _sending(place: Place, peer: Peer) -> AsyncIterator["GrpcSending"]:
    async with open_channel(peer.address, TlsSettings()) as channel:
        frame_pages = limits_for("auto", place.settings, place.pool.layout).frame.pages
        yield GrpcSending(place.pool, frame_pages, channel)


class GrpcSending:
    def __init__(self, pool: Pool, frame_pages: int, channel: grpc.aio.Channel) -> None:
        self._pool = pool
        self._frame_pages = frame_pages
        self._channel = channel

    async def send(self, move: Move) -> None:
        stub: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = self._channel.stream_unary(METHOD)
        call = stub(wait_for_ready=True)
        end = move.first_page + move.num_pages
        for first_page in range(move.first_page, end, self._frame_pages):
            extent = Extent(first_page, min(self._frame_pages, end - first_page))
            await call.write(b"".join(self._pool.views(extent)))
        await call.done_writing()
        num_bytes = int.from_bytes(await call)
        expected = move.num_pages * self._pool.layout.page_bytes
        if num_bytes != expected:
            raise PeerUnavailable(f"{num_bytes} of {expected} bytes arrived")


@asynccontextmanager
async def _receiving(place: Place) -> AsyncIterator["GrpcReceiving"]:
    address = free_address(place.host)
    receiving = GrpcReceiving(place.pool, Peer(address))
    server = new_server()
    receiving.add_to(server)
    node = NodeSettings("receiver", NodeRole.DECODE, bind=address)
    bind_server(server, node, TlsSettings())
    await server.start()
    try:
        yield receiving
    finally:
        await server.stop(None)


class GrpcReceiving:
    """One move at a time: a stream says nothing about itself."""

    def __init__(self, pool: Pool, peer: Peer) -> None:
        self.peer = peer
        self._pool = pool
        self._expected = Extent(0, 0)
        self._arrived = asyncio.Event()

    def add_to(self, server: grpc.aio.Server) -> None:
        handler: grpc.RpcMethodHandler[bytes, bytes]
        handler = grpc.stream_unary_rpc_method_handler(self._receive)
        generic = grpc.method_handlers_generic_handler(SERVICE, {"Send": handler})
        server.add_generic_rpc_handlers((generic,))

    async def receive(self, move: Move, ready: asyncio.Event) -> None:
        self._expected = Extent(move.first_page, move.num_pages)
        self._arrived.clear()
        ready.set()
        await self._arrived.wait()

    async def _receive(self, _: AsyncIterator[bytes], context: Context) -> bytes:
        layout, num_bytes = self._pool.layout, 0
        pages = self._pool.pages(self._expected)
        while isinstance(frame := await context.read(), bytes):
            first = num_bytes // layout.page_bytes
            num_bytes += len(frame)
            last = num_bytes // layout.page_bytes
            self._pool.write(pages[first:last], 0, layout.num_layers, memoryview(frame))
        self._arrived.set()
        return num_bytes.to_bytes(8)
