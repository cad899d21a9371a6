"""When a pair warms its connections, over a relay that holds every byte back for a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kvtransfer import warmth
from page_memory import RECEIVER
from pdcore.settings import TransferSettings
from waiting import until
from wired_pair import LAYOUT, NUM_PAGES, SETTINGS, Wire, transfer, wired

DELAY_S = 0.01
CAP = 512 * 2**10
WARMING = replace(SETTINGS, warmup_bytes=CAP)


@asynccontextmanager
async def far(settings: TransferSettings) -> AsyncIterator[Wire]:
    """As ``wired``, over a path of twice ``DELAY_S``; the pair is attached."""
    async with wired(settings, delay_s=DELAY_S) as wire:
        await wire.pair.attached(RECEIVER.epoch, 5.0)
        yield wire


async def test_the_round_trip_becomes_known_without_a_transfer() -> None:
    async with far(replace(SETTINGS, warmup_bytes=0)) as wire:
        await until(lambda: wire.pair.path.rtt_s is not None)
        assert wire.pair.path.rtt_s >= 2 * DELAY_S


async def test_new_connections_are_warmed_and_the_bytes_stand_in_the_first_report() -> None:
    async with far(WARMING) as wire:
        await until(lambda: wire.pair.warmup_bytes > 0)
        assert wire.pair.warmup_bytes <= CAP
        assert wire.pair.path.rate_bytes_per_s > 0
        assert wire.pair.path.in_flight_bytes == 0
        first = await transfer(wire, "t", "auto")
        second = await transfer(wire, "next", "auto")
    assert first.warmup_bytes == wire.pair.warmup_bytes
    assert second.warmup_bytes == 0


async def test_it_can_be_turned_off() -> None:
    async with far(replace(SETTINGS, warmup_bytes=0)) as wire:
        await until(lambda: wire.pair.path.rtt_s is not None)
        wire.pair.expect_transfer(2**30)
        report = await transfer(wire, "t", "auto")
        assert report.warmup_bytes == wire.pair.warmup_bytes == 0


async def test_a_transfer_after_idle_is_prepared_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmth, "COLD_AFTER_S", 0.05)
    async with far(WARMING) as wire:
        await until(lambda: wire.pair.warmup_bytes > 0)
        await asyncio.sleep(0.1)
        before = wire.pair.warmup_bytes
        wire.pair.expect_transfer(NUM_PAGES * LAYOUT.page_bytes)
        await until(lambda: wire.pair.warmup_bytes > before)
        spent = wire.pair.warmup_bytes
        wire.pair.expect_transfer(NUM_PAGES * LAYOUT.page_bytes)
        assert (await transfer(wire, "t", "auto")).warmup_bytes == spent


async def test_pages_go_first() -> None:
    """The warm-up, which would go on, ends; and the transfer is whole."""
    async with far(replace(SETTINGS, warmup_bytes=2**30, accept_warmup_bytes=2**31)) as wire:
        busy = wire.pair.path
        await until(lambda: busy.in_flight_bytes > 0)
        sender = wire.sender("t", "auto")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(wire.receive("t"))
            report = tasks.create_task(sender.run())
            sender.pages_ready(NUM_PAGES)
            await until(lambda: wire.pair.warmup_bytes > 0)
            sender.hand_off((5, 6), 16)
        assert report.result().warmup_bytes == wire.pair.warmup_bytes < 2**30
        wire.assert_balanced()
        assert wire.pair.path.in_flight_bytes == 0


async def test_a_receiver_that_takes_no_warm_ups_still_takes_transfers() -> None:
    async with far(replace(WARMING, accept_warmup_bytes=0)) as wire:
        await until(lambda: wire.pair.warmup_bytes > 0)
        report = await transfer(wire, "t", "auto")
        assert report.attempts == 1
        wire.assert_balanced()


async def test_a_link_that_breaks_ends_the_warm_up_and_nothing_else() -> None:
    async with far(replace(SETTINGS, warmup_bytes=2**30)) as wire:
        await until(lambda: wire.pair.path.in_flight_bytes > 0)
        wire.relay.cut()
        await until(lambda: wire.pair.standing is None)
        await wire.pair.attached(RECEIVER.epoch, 5.0)
        await transfer(wire, "t", "auto")
        assert wire.pair.path.in_flight_bytes == 0
