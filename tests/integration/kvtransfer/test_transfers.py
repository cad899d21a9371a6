"""Transfers over real loopback sockets: every mode, cut, parked, given up."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from kvtransfer.limits import MODES
from kvtransfer.stripe_policy import START_STRIPES
from page_memory import RECEIVER, Target
from pdcore.errors import (
    InternalError,
    PeerUnavailable,
    ProtocolViolation,
    TransferFailed,
    UnknownTransfer,
)
from pdcore.generation import TransferId
from waiting import raises, until
from wired_pair import (
    LAYOUT,
    NUM_PAGES,
    NUM_TOKENS,
    RECEIVER_PAGES,
    SETTINGS,
    produce,
    transfer,
    wired,
)


@pytest.mark.parametrize("mode", MODES)
async def test_every_mode_delivers_every_byte(mode: str) -> None:
    async with wired() as wire:
        report = await transfer(wire, "t", mode)
        wire.assert_balanced()
        assert set(wire.sink.num_writes.values()) == {1}
    assert report.mode == mode
    assert report.page_bytes == report.wire_bytes == NUM_PAGES * LAYOUT.page_bytes
    assert report.stripes == {"striped": 3, "auto": START_STRIPES}.get(mode, 1)
    bound = SETTINGS.credit_bytes if mode == "auto" else SETTINGS.window_bytes
    assert report.max_in_flight_bytes <= bound
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


async def test_memory_that_cannot_be_written_ends_both_at_once() -> None:
    async with wired(replace(SETTINGS, resume_s=60)) as wire:
        wire.sink.fails = True
        sender = wire.sender("t")
        sender.pages_ready(10)
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            received = tasks.create_task(raises(InternalError, wire.receive("t")))
            sent = tasks.create_task(raises(InternalError, sender.run()))
        assert str(received.result()) == str(sent.result()) == "OSError in this node; see its log"
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


class AskedStripes:
    """As many as the test asks for."""

    is_lossy = False

    def __init__(self, num: int) -> None:
        self.num = num

    def num_stripes(self) -> int:
        return self.num

    def on_tcp(self, samples: object, *, now: float) -> None: ...


async def test_connections_are_added_in_mid_transfer() -> None:
    async with wired() as wire:
        wire.pair.stripes = stripes = AskedStripes(1)  # type: ignore[assignment]
        sender = wire.sender("t", "auto")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(wire.receive("t"))
            report = tasks.create_task(sender.run())
            sender.pages_ready(8)
            await until(lambda: wire.sink.num_writes.total() == 8 * LAYOUT.num_layers)
            num_before = wire.relay.num_accepted
            stripes.num = 5
            sender.pages_ready(16)
            await until(lambda: wire.relay.num_accepted > num_before)
            await produce(sender)
        wire.assert_balanced()
        assert set(wire.sink.num_writes.values()) == {1}
        assert report.result().stripes == 5
        assert report.result().attempts == 1
        assert wire.relay.num_accepted == 6  # five, and the one for Attach and pings


async def test_one_of_several_connections_breaks() -> None:
    """Its pages go over the others, and it comes back."""
    async with wired() as wire:
        sender = wire.sender("t", "striped")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(wire.receive("t"))
            report = tasks.create_task(sender.run())
            sender.pages_ready(NUM_PAGES // 2)
            await until(lambda: wire.sink.num_writes.total() > 0)
            wire.relay.cut_newest()
            await until(lambda: wire.relay.num_accepted == 5)
            assert wire.pair.standing is not None
            await produce(sender)
        assert report.result().attempts == 2
        assert set(wire.sink.num_writes.values()) == {1}
        wire.assert_balanced()


async def test_a_pair_reattaches_with_all_its_connections() -> None:
    async with wired() as wire:
        await transfer(wire, "t", "striped")
        wire.relay.cut()
        await until(lambda: wire.pair.standing is None)
        await wire.pair.attached(RECEIVER.epoch, 5.0)
        await until(lambda: wire.relay.num_accepted == 8)
        report = await transfer(wire, "next", "striped")
        assert report.attempts == 1


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


async def test_an_id_is_sent_once_at_a_time() -> None:
    async with wired() as wire:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(transfer(wire, "t"))
            await until(lambda: wire.sink.num_writes.total() > 0)
            with pytest.raises(ProtocolViolation, match="transfer t is being sent already"):
                await wire.sender("t").run()
        wire.assert_balanced()
