"""Shares are exclusive and add up; the model's formulas, by hand-computed figures."""

import random

import pytest

from kvtransfer.accounting import (
    Accounting,
    Path,
    SendState,
    frames_that_fill_the_link,
    sequential_bytes_per_s,
    streamed_s,
    windowed_bytes_per_s,
)

PRODUCER, PREPARE, WINDOW, TRANSPORT = SendState


def test_one_stripe() -> None:
    accounting = Accounting()
    accounting.waits_for(PRODUCER, 1.0)
    accounting.start(2.0)
    accounting.start(3.0)
    accounting.busy(0, PREPARE, 4.0)
    accounting.busy(0, TRANSPORT, 7.0)
    accounting.waits_for(WINDOW, 8.0)  # the stripe is still busy
    accounting.idle(0, 11.0)
    assert accounting.seconds(16.0) == {PRODUCER: 2.0, PREPARE: 3.0, TRANSPORT: 4.0, WINDOW: 5.0}


def test_the_busiest_stripe_counts() -> None:
    accounting = Accounting()
    accounting.start(0.0)
    accounting.busy(0, TRANSPORT, 0.0)
    accounting.busy(1, PREPARE, 1.0)
    accounting.busy(1, TRANSPORT, 2.0)
    accounting.idle(0, 4.0)
    accounting.waits_for(WINDOW, 5.0)
    accounting.idle(1, 6.0)
    assert accounting.state is WINDOW
    assert accounting.seconds(7.0) == {PRODUCER: 0.0, PREPARE: 1.0, TRANSPORT: 5.0, WINDOW: 1.0}


def test_shares_add_up_to_the_duration() -> None:
    chance, accounting, now = random.Random(5), Accounting(), 10.0
    accounting.start(now)
    for _ in range(500):
        now += chance.random()
        stripe = chance.randrange(3)
        match chance.randrange(3):
            case 0:
                accounting.busy(stripe, chance.choice([PREPARE, TRANSPORT]), now)
            case 1:
                accounting.idle(stripe, now)
            case _:
                accounting.waits_for(chance.choice([PRODUCER, WINDOW]), now)
    assert sum(accounting.seconds(now).values()) == pytest.approx(now - 10.0)


# 1 Gbit/s and 50 ms, frames of 2 MiB: S/B = 16.8 ms.
WAN = Path(rtt_s=0.05, link_bytes_per_s=125e6)
FRAME = 2 * 2**20


def test_sequential() -> None:
    assert sequential_bytes_per_s(WAN, FRAME) == pytest.approx(31.4e6, rel=0.01)
    assert sequential_bytes_per_s(WAN, 65536) == pytest.approx(1.297e6, rel=0.01)
    costly = Path(0.05, 125e6, frame_cost_s=0.01)
    assert sequential_bytes_per_s(costly, FRAME) == pytest.approx(27.3e6, rel=0.01)


def test_windowed_is_the_least_of_link_software_and_window() -> None:
    assert windowed_bytes_per_s(WAN, FRAME, 1) == sequential_bytes_per_s(WAN, FRAME)
    assert windowed_bytes_per_s(WAN, FRAME, 2) == 2 * sequential_bytes_per_s(WAN, FRAME)
    assert windowed_bytes_per_s(WAN, FRAME, 9) == 125e6
    slow = Path(0.0, 125e6, frame_cost_s=0.1)
    assert windowed_bytes_per_s(slow, FRAME, 9) == FRAME / 0.1


def test_window_that_fills_the_link() -> None:
    assert frames_that_fill_the_link(WAN, FRAME) == 4
    needed = frames_that_fill_the_link(WAN, FRAME)
    assert windowed_bytes_per_s(WAN, FRAME, needed) == 125e6
    assert windowed_bytes_per_s(WAN, FRAME, needed - 1) < 125e6
    assert frames_that_fill_the_link(Path(0.0, 125e6), FRAME) == 1


def test_streamed() -> None:
    assert streamed_s(WAN, 125_000_000) == pytest.approx(1.05)
