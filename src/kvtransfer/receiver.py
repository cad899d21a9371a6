"""Receives KV pages: the ``KvTransfer`` service of a decode node.

    async with receiver.expect(transfer_id, target) as incoming:
        handoff = await incoming.committed()

Invariant: once that block is left, nothing of this file touches the transfer's pages. What a
message means in each state is decided in ``registry`` and ``incoming``; this file reads, answers
and waits.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import monotonic

import grpc

from kvtransfer.changes import Changes, wait_until
from kvtransfer.framing import decode_attach, decode_push, encode_reply, encode_standing
from kvtransfer.handshake import PROTOCOL, check_attach
from kvtransfer.incoming import IncomingTransfer, TransferState
from kvtransfer.incoming_stream import IncomingStream, StreamState
from kvtransfer.messages import Handoff, Identity, Standing
from kvtransfer.pages import PageSink, TransferTarget
from kvtransfer.path_service import PathService
from kvtransfer.registry import TransferRegistry
from pdcore.errors import NodeDraining, PeerUnavailable, ProtocolViolation
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout
from pdcore.rpc_errors import aborting
from pdcore.settings import TransferSettings

SERVICE = "pdwire.v1.KvTransfer"

Context = grpc.aio.ServicerContext[bytes, bytes]


class Incoming:
    """An announced transfer, for its owner."""

    def __init__(self, transfer: IncomingTransfer) -> None:
        self.transfer = transfer
        self.changes = Changes()

    async def committed(self) -> Handoff:
        """Wait until every page is there. Raises the TransferFailed or PeerUnavailable instead.

        Waits without limit for the first stream; that the prefill node has given up, the owner
        learns by being cancelled.
        """
        transfer = self.transfer
        while True:
            change = self.changes.next()
            transfer.check(monotonic())
            if transfer.error is not None:
                raise transfer.error
            if transfer.state is TransferState.COMMITTED and transfer.handoff is not None:
                return transfer.handoff
            await wait_until(change, transfer.deadline())


class KvReceiver:
    """One for each decode node; lives on its event loop."""

    def __init__(
        self, identity: Identity, layout: KvLayout, sink: PageSink, settings: TransferSettings
    ) -> None:
        self._identity = identity
        self._layout = layout
        self._settings = settings
        self._registry = TransferRegistry(identity, layout, sink, settings)
        self._owners: dict[TransferId, Incoming] = {}
        self._waits: dict[TransferId, dict[IncomingStream, _Wait]] = {}
        self._path = PathService(identity.node, settings)
        self._closed = asyncio.Event()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Messages stay bytes in gRPC: ``framing`` splits them without a copy."""
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Attach": grpc.unary_stream_rpc_method_handler(self._attach),
            "Push": grpc.stream_stream_rpc_method_handler(self._push),
            "Ping": grpc.unary_unary_rpc_method_handler(self._path.ping),
            "Warm": grpc.stream_stream_rpc_method_handler(self._path.warm),
        }
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        server.add_generic_rpc_handlers((generic,))

    @asynccontextmanager
    async def expect(
        self, transfer_id: TransferId, target: TransferTarget
    ) -> AsyncIterator[Incoming]:
        """Announce a transfer and own it. Raises ProtocolViolation for an id that was used."""
        transfer = self._registry.expect(transfer_id, target, monotonic())
        incoming = self._owners[transfer_id] = Incoming(transfer)
        self._stir(transfer_id)
        try:
            yield incoming
        finally:
            self._registry.leave(transfer)
            self._stir(transfer_id)
            del self._owners[transfer_id]

    def close(self) -> None:
        """The node drains: every pair ends, by name. Transfers that run go on."""
        self._closed.set()
        self._path.close()

    async def _attach(self, request: bytes, context: Context) -> None:
        async with aborting(context):
            check_attach(decode_attach(request), self._layout)
            if not self._closed.is_set():
                standing = Standing(
                    self._identity, self._layout, PROTOCOL, self._settings.credit_bytes
                )
                await context.write(encode_standing(standing))
                await self._closed.wait()
            raise NodeDraining(f"{self._identity.node} is stopping")

    async def _push(self, _: AsyncIterator[bytes], context: Context) -> None:
        """One stream: opened, perhaps parked, then read until its transfer is over."""
        async with aborting(context):
            stream = await self._open(context)
            try:
                await self._leave_park(stream, context)
                while stream.is_open:
                    await self._receive_next(stream, context)
                if stream.error is not None:
                    raise stream.error
                await self._reply(stream, context)
            finally:
                self._registry.broken(stream, monotonic())
                self._stir(stream.transfer_id)

    async def _open(self, context: Context) -> IncomingStream:
        push = decode_push(await self._first_message(context))
        try:
            return self._registry.open(push, monotonic())
        finally:
            self._stir(push.transfer_id)

    async def _first_message(self, context: Context) -> bytes:
        """It comes with the stream, or the stream ends: nothing else would end one in silence."""
        limit_s = self._settings.park_s
        try:
            async with asyncio.timeout(limit_s):
                data: object = await context.read()
        except TimeoutError:
            raise ProtocolViolation(f"no opening came within {limit_s:g} s") from None
        if not isinstance(data, bytes):
            raise ProtocolViolation("a stream ended before its opening")
        return data

    async def _leave_park(self, stream: IncomingStream, context: Context) -> None:
        """Answer the opening, so that the sender knows it is heard, and wait for ``Generate``."""
        if stream.state is not StreamState.COMMITTED:
            await self._reply(stream, context)
        if stream.state is StreamState.PARKED:
            async with self._waiting(stream, self._settings.park_s):
                await asyncio.get_running_loop().create_future()
            self._registry.park_ran_out(stream)

    async def _receive_next(self, stream: IncomingStream, context: Context) -> None:
        data: object = None
        async with self._waiting(stream):
            data = await context.read()
        if isinstance(data, bytes):
            self._take(stream, data)
            if stream.is_open:
                await self._reply(stream, context)
        elif stream.is_open:
            raise PeerUnavailable("the sender ended a stream before the commit")

    def _take(self, stream: IncomingStream, data: bytes) -> None:
        started_s = monotonic()
        try:
            self._registry.receive(stream, decode_push(data), started_s)
        except ProtocolViolation as error:
            self._registry.fail(stream, error)
        stream.busy_s += monotonic() - started_s
        self._stir(stream.transfer_id)

    async def _reply(self, stream: IncomingStream, context: Context) -> None:
        await context.write(encode_reply(stream.reply(self._settings.credit_bytes)))

    @asynccontextmanager
    async def _waiting(
        self, stream: IncomingStream, limit_s: float | None = None
    ) -> AsyncIterator[None]:
        """A wait that ends, in silence, after ``limit_s`` or when the stream's state changes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s) as scope:
                waits = self._waits.setdefault(stream.transfer_id, {})
                waits[stream] = _Wait(scope, stream.state)
                try:
                    yield
                finally:
                    self._waits_no_more(stream)

    def _stir(self, transfer_id: TransferId) -> None:
        """Something may have changed: wake the owner, and the streams that wait for nothing now."""
        owner = self._owners.get(transfer_id)
        if owner is not None:
            owner.changes.notify()
        for stream, wait in list(self._waits.get(transfer_id, {}).items()):
            if stream.state is not wait.state:
                self._waits_no_more(stream)
                if not wait.scope.expired():
                    wait.scope.reschedule(0.0)

    def _waits_no_more(self, stream: IncomingStream) -> None:
        waits = self._waits.get(stream.transfer_id, {})
        waits.pop(stream, None)
        if not waits:
            self._waits.pop(stream.transfer_id, None)


@dataclass(frozen=True, slots=True)
class _Wait:
    """What a stream's handler waits in; ``scope`` ends it when the stream has left ``state``."""

    scope: asyncio.Timeout
    state: StreamState
