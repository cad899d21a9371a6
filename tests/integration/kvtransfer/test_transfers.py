"""Sender, receiver and pairs over real loopback sockets, with bytearrays for KV memory."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import grpc
import pytest

from kvtransfer import framing
from kvtransfer.channels import Pairs
from kvtransfer.handshake import PROTOCOL
from kvtransfer.limits import MODES, limits_for
from kvtransfer.messages import Extent, Frame, Handoff, Identity, Opening, PageRun
from kvtransfer.pair import PUSH, Pair
from kvtransfer.receiver import KvReceiver
from kvtransfer.sender import KvSender, OutgoingTransfer
from page_memory import RECEIVER, SENDER, PageMemory, Target
from pdcore.cluster import Epoch, NodeName
from pdcore.errors import (
    ChecksumMismatch,
    EpochMismatch,
    LayoutMismatch,
    PeerUnavailable,
    ProtocolViolation,
    TransferFailed,
    UnknownTransfer,
)
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout
from pdcore.rpc import new_server, open_channel
from pdcore.rpc_errors import error_from_rpc
from pdcore.settings import TlsSettings, TransferSettings
from pdwire.v1.generation_pb2 import TransferReport
from tcp_relay import TcpRelay, tcp_relay
from waiting import raises, until

# 16 KiB a layer, 64 KiB a page, 4 MiB a transfer.
LAYOUT = KvLayout("m", num_layers=4, num_kv_heads=2, head_dim=128, page_tokens=16, dtype="bfloat16")
NUM_PAGES = 64
NUM_TOKENS = NUM_PAGES * LAYOUT.page_tokens - 5
SETTINGS = TransferSettings(
    frame_bytes=256 * 1024,
    window_bytes=1024 * 1024,
    credit_bytes=2 * 1024 * 1024,
    stripes=3,
    park_s=0.3,
    resume_s=1.5,
    stall_s=3.0,
)
SENDER_PAGES = list(range(NUM_PAGES))
RECEIVER_PAGES = list(range(NUM_PAGES, 0, -1))  # elsewhere, and in another order


@dataclass
class Wire:
    """A receiver behind a relay, and a pair with it."""

    pairs: Pairs
    pair: Pair
    receiver: KvReceiver
    relay: TcpRelay
    source: PageMemory
    sink: PageMemory
    settings: TransferSettings

    def sender(self, name: str, mode: str = "striped", epoch: Epoch = RECEIVER.epoch) -> KvSender:
        outgoing = OutgoingTransfer(TransferId(name), epoch, SENDER_PAGES, NUM_TOKENS)
        limits = limits_for(mode, self.settings, LAYOUT)
        return KvSender(self.pair, self.source, outgoing, limits, self.settings)

    async def receive(self, name: str) -> Handoff:
        target = Target(NUM_TOKENS, RECEIVER_PAGES)
        async with self.receiver.expect(TransferId(name), target) as incoming:
            handoff = await incoming.committed()
            assert self.sink.pages(RECEIVER_PAGES) == self.source.pages(SENDER_PAGES)
            return handoff

    def assert_balanced(self) -> None:
        assert self.pair.credit.in_flight_bytes == 0
        assert self.pair.credit.next_in_line() is None


@asynccontextmanager
async def serving(receiver: KvReceiver) -> AsyncIterator[int]:
    server = new_server()
    receiver.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        receiver.close()
        await server.stop(0.5)


@asynccontextmanager
async def wired(
    settings: TransferSettings = SETTINGS, layout: KvLayout = LAYOUT
) -> AsyncIterator[Wire]:
    """``layout`` is the sender's."""
    source = PageMemory(LAYOUT, NUM_PAGES, seed=1)
    sink = PageMemory(LAYOUT, NUM_PAGES + 1)
    receiver = KvReceiver(RECEIVER, LAYOUT, sink, settings)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(receiver))
        relay = await stack.enter_async_context(tcp_relay(port))
        pairs = await stack.enter_async_context(Pairs(SENDER, layout, settings, TlsSettings()))
        pair = pairs.pair(RECEIVER.node, f"127.0.0.1:{relay.port}")
        yield Wire(pairs, pair, receiver, relay, source, sink, settings)


async def produce(sender: KvSender, *, pause_s: float = 0.001) -> None:
    """Prefill in eight chunks, then the handoff."""
    for chunk in range(1, 9):
        await asyncio.sleep(pause_s)
        sender.pages_ready(chunk * NUM_PAGES // 8)
    sender.hand_off((5, 6), 16)


async def transfer(wire: Wire, name: str, mode: str = "striped") -> TransferReport:
    sender = wire.sender(name, mode)
    async with asyncio.TaskGroup() as tasks:
        received = tasks.create_task(wire.receive(name))
        report = tasks.create_task(sender.run())
        tasks.create_task(produce(sender))
    assert received.result() == Handoff((5, 6), 16, NUM_PAGES * LAYOUT.page_bytes)
    return report.result()


@pytest.mark.parametrize("mode", MODES)
async def test_every_mode_delivers_every_byte(mode: str) -> None:
    async with wired() as wire:
        report = await transfer(wire, "t", mode)
        wire.assert_balanced()
        assert set(wire.sink.num_writes.values()) == {1}
    assert report.mode == mode
    assert report.page_bytes == report.wire_bytes == NUM_PAGES * LAYOUT.page_bytes
    assert report.stripes == (3 if mode == "striped" else 1)
    assert report.max_in_flight_bytes <= SETTINGS.window_bytes
    shares = report.producer_s + report.prepare_s + report.window_s + report.transport_s
    assert shares == pytest.approx(report.duration_s)
    frames = {
        "sequential_layer": 256,
        "sequential": 64,
        "bulk": 16,
        "windowed": 64,
        "coalesced": 16,
    }
    if mode in frames:
        assert report.frames == frames[mode]
    if not MODES[mode].windowed:
        assert report.round_trips == report.frames


async def test_transfers_share_a_pair() -> None:
    """Their windows together exceed the credit, so they wait for each other."""
    settings = replace(SETTINGS, credit_bytes=SETTINGS.window_bytes // 2)
    async with wired(settings) as wire:
        await asyncio.gather(*(transfer(wire, f"t{number}") for number in range(6)))
        wire.assert_balanced()


async def test_push_before_generate_is_parked() -> None:
    async with wired() as wire:
        sender = wire.sender("t")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sender.run())
            tasks.create_task(produce(sender))
            await asyncio.sleep(SETTINGS.park_s / 2)
            assert not wire.sink.num_writes
            await wire.receive("t")


async def test_parked_too_long_is_refused_by_name() -> None:
    async with wired() as wire:
        sender = wire.sender("t")
        await produce(sender)
        with pytest.raises(UnknownTransfer, match="no request announced transfer t to decode-0"):
            await sender.run()
        wire.assert_balanced()


async def test_too_many_parked_streams_are_refused() -> None:
    async with wired(replace(SETTINGS, park_streams=2)) as wire:
        sender = wire.sender("t")
        await produce(sender)
        with pytest.raises(UnknownTransfer, match="2 streams of prefill-0 wait already"):
            await sender.run()


async def test_owner_leaves_in_mid_transfer() -> None:
    async with wired() as wire:
        sender = wire.sender("t")
        target = Target(NUM_TOKENS, RECEIVER_PAGES)
        async with asyncio.TaskGroup() as tasks, wire.receiver.expect(TransferId("t"), target):
            run = tasks.create_task(raises(TransferFailed, sender.run()))
            sender.pages_ready(10)
            await until(lambda: wire.sink.num_writes.total() > 0)
        assert "gave up this transfer" in str(run.result())
        writes = wire.sink.num_writes.total()
        late = wire.sender("t")
        late.pages_ready(NUM_PAGES)
        assert "is over" in str(await raises(TransferFailed, late.run()))
        assert wire.sink.num_writes.total() == writes
        wire.assert_balanced()


async def test_sender_is_cancelled() -> None:
    """The receiver waits for it to come back for resume_s, no longer."""
    async with wired() as wire:
        sender = wire.sender("t")
        async with asyncio.TaskGroup() as tasks:
            received = tasks.create_task(raises(PeerUnavailable, wire.receive("t")))
            run = tasks.create_task(sender.run())
            sender.pages_ready(10)
            await until(lambda: wire.sink.num_writes.total() > 0)
            run.cancel()
        assert "did not come back within 1.5 s" in str(received.result())
        wire.assert_balanced()
        await transfer(wire, "next")


@pytest.mark.parametrize("mode", ["sequential", "pipelined", "striped"])
async def test_cut_connection_resumes(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    async with wired() as wire:
        async with asyncio.TaskGroup() as tasks:
            report = tasks.create_task(transfer(wire, "t", mode))
            await wire.relay.cut_after(NUM_PAGES * LAYOUT.page_bytes // 2)
        assert report.result().attempts >= 2
        assert not [record for record in caplog.records if record.levelname == "ERROR"]
        assert set(wire.sink.num_writes.values()) == {1}
        wire.assert_balanced()


async def test_a_link_that_breaks_again_and_again() -> None:
    """Each time it comes back, so how often does not matter."""
    async with wired() as wire:
        sender = wire.sender("t", "pipelined")

        def arrived(num_pages: int) -> bool:
            return wire.sink.num_writes.total() == num_pages * LAYOUT.num_layers

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(wire.receive("t"))
            report = tasks.create_task(sender.run())
            for num_ready in range(1, 9):
                sender.pages_ready(num_ready)
                await until(partial(arrived, num_ready))
                wire.relay.cut()
            await produce(sender)
        assert report.result().attempts >= 9
        wire.assert_balanced()


async def test_cut_for_good_fails_both_ends_by_name() -> None:
    async with wired() as wire:
        sender = wire.sender("t")
        async with asyncio.TaskGroup() as tasks:
            received = tasks.create_task(raises(PeerUnavailable, wire.receive("t")))
            sent = tasks.create_task(raises(PeerUnavailable, sender.run()))
            sender.pages_ready(10)
            await until(lambda: wire.sink.num_writes.total() > 0)
            wire.relay.accepts = False
            wire.relay.cut()
        assert "no connection to the decode node for 1.5 s" in str(sent.result())
        assert received.result() is not None
        wire.assert_balanced()
        assert wire.pair.standing is None
        wire.relay.accepts = True
        await wire.pair.attached(RECEIVER.epoch, 5.0)
        await transfer(wire, "next")


async def test_other_epoch_is_named() -> None:
    async with wired() as wire:
        sender = wire.sender("t", epoch=Epoch(21))
        with pytest.raises(EpochMismatch, match="decode-0 has epoch 16, 15 was meant"):
            await sender.run()


async def test_other_layout_is_named() -> None:
    async with wired(layout=replace(LAYOUT, page_tokens=32)) as wire:
        with pytest.raises(LayoutMismatch, match="page_tokens: 16 here, 32 there"):
            await wire.sender("t").run()


async def test_nobody_listens() -> None:
    async with wired() as wire:
        wire.relay.accepts = False
        wire.relay.cut()
        await until(lambda: wire.pair.standing is None)
        with pytest.raises(PeerUnavailable, match="decode-0"):
            await wire.sender("t").run()


async def test_peers_follow_the_attach_streams() -> None:
    receiver = KvReceiver(RECEIVER, LAYOUT, PageMemory(LAYOUT, 1), SETTINGS)
    async with Pairs(SENDER, LAYOUT, SETTINGS, TlsSettings()) as pairs:
        changes = pairs.watch_changes()
        assert await anext(changes) == frozenset()
        async with serving(receiver) as port:
            pairs.pair(RECEIVER.node, f"127.0.0.1:{port}")
            assert await anext(changes) == {(RECEIVER.node, RECEIVER.epoch)}
            receiver.close()
            assert await anext(changes) == frozenset()
        await changes.aclose()


async def test_a_forgotten_pair_finishes_what_it_sends() -> None:
    async with wired() as wire:
        sender = wire.sender("t")
        async with asyncio.TaskGroup() as tasks:
            received = tasks.create_task(wire.receive("t"))
            tasks.create_task(sender.run())
            sender.pages_ready(10)
            await until(lambda: wire.sink.num_writes.total() > 0)
            wire.pairs.forget(RECEIVER.node, wire.pair.address)
            await until(lambda: wire.pair.standing is None)
            assert wire.pairs.peers == frozenset()
            await produce(sender)
        assert received.result().first_token_ids == (5, 6)
        with pytest.raises(PeerUnavailable, match="is no longer known"):
            await wire.sender("next").run()
        assert wire.pairs.pair(RECEIVER.node, wire.pair.address) is not wire.pair


async def test_closing_the_pairs_ends_what_is_sent() -> None:
    async with wired() as wire, asyncio.TaskGroup() as tasks:
        async with Pairs(SENDER, LAYOUT, SETTINGS, TlsSettings()) as pairs:
            wire.pair = pairs.pair(RECEIVER.node, wire.pair.address)
            sender = wire.sender("t")
            tasks.create_task(raises(PeerUnavailable, wire.receive("t")))
            sent = tasks.create_task(raises(PeerUnavailable, sender.run()))
            sender.pages_ready(10)
            await until(lambda: wire.sink.num_writes.total() > 0)
        await sent
        wire.assert_balanced()


async def test_an_id_is_sent_once_at_a_time() -> None:
    async with wired() as wire:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(transfer(wire, "t"))
            await until(lambda: wire.sink.num_writes.total() > 0)
            with pytest.raises(ProtocolViolation, match="transfer t is being sent already"):
                await wire.sender("t").run()
        wire.assert_balanced()


# What our own sender never does, said to the receiver by hand.


@asynccontextmanager
async def raw_stream(wire: Wire, name: str) -> AsyncIterator[grpc.aio.StreamStreamCall]:
    channel = open_channel(f"127.0.0.1:{wire.relay.port}", TlsSettings())
    async with channel:
        yield channel.stream_stream(PUSH)()


def opening(name: str) -> bytes:
    return framing.encode_push(
        TransferId(name),
        0,
        Opening(
            sender=Identity(NodeName("prefill-0"), SENDER.epoch),
            receiver_epoch=RECEIVER.epoch,
            protocol=PROTOCOL,
            layout=LAYOUT,
            codec="raw",
            extent=Extent(NUM_TOKENS, NUM_PAGES, 1),
            stripe=0,
        ),
    )


async def refusal(call: grpc.aio.StreamStreamCall, messages: Sequence[bytes]) -> Exception:
    """What ends the stream after these messages."""
    try:
        for message in messages:
            await call.write(message)
        while await call.read() is not grpc.aio.EOF:
            continue
    except grpc.aio.AioRpcError as error:
        return error_from_rpc(error, "decode-0")
    raise AssertionError("the stream ended well")


async def test_corrupt_payload_fails_the_transfer() -> None:
    async with wired() as wire, raw_stream(wire, "t") as call, asyncio.TaskGroup() as tasks:
        received = tasks.create_task(raises(ChecksumMismatch, wire.receive("t")))
        payload = wire.source.page(0)
        frame = Frame(0, (PageRun(0, 1, 0, 4),), framing.checksum((payload,)))
        message = bytearray(framing.encode_push(TransferId("t"), 0, frame, (payload,)))
        message[-1] ^= 1
        error = await refusal(call, [opening("t"), bytes(message)])
        assert isinstance(error, ChecksumMismatch)
        assert not wire.sink.num_writes
    assert "frame 0 of stripe 0 (65536 bytes)" in str(received.result())


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([b"garbage"], "expected the header of a PushMessage"),
        ([b""], "expected the header of a PushMessage, found nothing"),
        ([opening("t"), b"\x0a\x7f"], "the header of a PushMessage says 127 bytes, 0 follow"),
        ([opening("t"), opening("t")], "a second opening"),
        ([opening("t"), framing.encode_push(TransferId("u"), 0, Handoff((1,), 0, 1))], "of u on a"),
        ([framing.encode_push(TransferId("t"), 0, Handoff((1,), 0, 1))], "begins with Handoff"),
    ],
)
async def test_what_is_no_protocol_is_named(messages: list[bytes], says: str) -> None:
    async with wired() as wire, raw_stream(wire, "t") as call:
        target = Target(NUM_TOKENS, RECEIVER_PAGES)
        async with wire.receiver.expect(TransferId("t"), target):
            error = await refusal(call, messages)
    assert isinstance(error, ProtocolViolation)
    assert says in str(error)
