"""The arms that are measured: each transfer mode, over the product's own sender and receiver.

Each arm has a pair of its own, so that its connections carry nothing but its own bytes. A warming
move goes over the same connections, coalesced where the mode itself sends one frame at a time: a
congestion control that has only seen one frame a round trip paces the next one too.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from time import monotonic

from kvtransfer.channels import Pairs
from kvtransfer.limits import MODES, FrameUnit, SendLimits, limits_for
from kvtransfer.messages import Identity
from kvtransfer.pair import Pair
from kvtransfer.receiver import KvReceiver
from kvtransfer.sender import KvSender, OutgoingTransfer
from pdcore.cluster import Epoch, NodeName, NodeRole, new_epoch
from pdcore.generation import TransferId
from pdcore.rpc import bind_server, new_server
from pdcore.settings import NodeSettings, TlsSettings
from pdlab.transfer.arm import Arm, Place, Receiving, Sending
from pdlab.transfer.messages import Move, Peer, Told, Watched
from pdlab.transfer.pool import Extent, Pool
from pdlab.transfer.ports import free_address
from pdwire.v1.generation_pb2 import TransferReport

ATTACH_S = 10.0
WATCH_S = 0.02
PLAIN = TlsSettings()


def kv_arm(mode: str) -> Arm:
    return Arm(partial(_open_sending, mode), _open_receiving)


def _open_sending(mode: str, place: Place, peer: Peer) -> AbstractAsyncContextManager[Sending]:
    return _sending(mode, place, peer)


def _open_receiving(place: Place) -> AbstractAsyncContextManager[Receiving]:
    return _receiving(place)


@asynccontextmanager
async def _sending(mode: str, place: Place, peer: Peer) -> AsyncIterator["KvSending"]:
    identity = Identity(NodeName("sender"), new_epoch())
    async with Pairs(identity, place.pool.layout, place.settings, PLAIN) as pairs:
        pair = pairs.open(peer.address)
        await pair.attached(Epoch(peer.epoch), ATTACH_S)
        yield KvSending(mode, place, pair, Epoch(peer.epoch))


class KvSending:
    def __init__(self, mode: str, place: Place, pair: Pair, receiver_epoch: Epoch) -> None:
        self._pool = place.pool
        self._settings = place.settings
        self._pair = pair
        self._receiver_epoch = receiver_epoch
        self._limits = self._limits_of(mode)
        self._warming = self._limits_of(mode if _fills_the_link(mode) else "coalesced")

    async def send(self, move: Move) -> Told:
        layout = self._pool.layout
        outgoing = OutgoingTransfer(
            TransferId(move.name),
            self._receiver_epoch,
            self._pool.pages(Extent(move.first_page, move.num_pages)),
            move.num_pages * layout.page_tokens,
        )
        limits = self._warming if move.warms else self._limits
        sender = KvSender(self._pair, self._pool, outgoing, limits, self._settings)
        sender.pages_ready(move.num_pages)
        sender.hand_off([1], 0)
        if not move.watch:
            return _told(await sender.run())
        return await self._watched(sender)

    async def _watched(self, sender: KvSender) -> Told:
        """Run it, and look at the pair's path meanwhile."""
        path, seen, began_s = self._pair.path, list[Watched](), monotonic()

        async def watch() -> None:
            while True:
                at_s = monotonic() - began_s
                seen.append(Watched(at_s, path.target_bytes or 0, path.in_flight_bytes))
                await asyncio.sleep(WATCH_S)

        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch())
            report = await sender.run()
            watching.cancel()
        return replace(_told(report), watched=tuple(seen))

    def _limits_of(self, mode: str) -> SendLimits:
        return limits_for(mode, self._settings, self._pool.layout)


def _fills_the_link(mode: str) -> bool:
    row = MODES[mode]
    return row.windowed and row.frame is FrameUnit.FILL


def _told(report: TransferReport) -> Told:
    return Told(
        mode=report.mode,
        frames=report.frames,
        stripes=report.stripes,
        attempts=report.attempts,
        frame_bytes=report.frame_bytes,
        window_bytes=report.window_bytes,
        max_in_flight_bytes=report.max_in_flight_bytes,
        duration_s=report.duration_s,
        producer_s=report.producer_s,
        prepare_s=report.prepare_s,
        window_s=report.window_s,
        transport_s=report.transport_s,
        verdict=report.verdict,
        verdict_text=report.verdict_text,
        frame_cost_s=report.frame_cost_s,
        warmup_bytes=report.warmup_bytes,
    )


@asynccontextmanager
async def _receiving(place: Place) -> AsyncIterator["KvReceiving"]:
    identity = Identity(NodeName("receiver"), new_epoch())
    address = free_address(place.host)
    receiver = KvReceiver(identity, place.pool.layout, place.pool, place.settings)
    server = new_server()
    receiver.add_to(server)
    bind_server(server, NodeSettings("receiver", NodeRole.DECODE, bind=address), PLAIN)
    await server.start()
    try:
        yield KvReceiving(place.pool, receiver, Peer(address, identity.epoch))
    finally:
        await server.stop(None)


class KvReceiving:
    def __init__(self, pool: Pool, receiver: KvReceiver, peer: Peer) -> None:
        self._pool = pool
        self._receiver = receiver
        self.peer = peer

    async def receive(self, move: Move, ready: asyncio.Event) -> None:
        target = _Target(self._pool, Extent(move.first_page, move.num_pages))
        async with self._receiver.expect(TransferId(move.name), target) as incoming:
            ready.set()
            await incoming.committed()


class _Target:
    """The promise that a transfer is received into: scattered pages of the pool."""

    def __init__(self, pool: Pool, extent: Extent) -> None:
        self._pool = pool
        self._extent = extent
        self.num_tokens = extent.num_pages * pool.layout.page_tokens

    def open(self, num_pages: int) -> Sequence[int]:
        return self._pool.pages(self._extent)[:num_pages]
