"""Shares are exclusive and add up."""

import random

import pytest

from kvtransfer.accounting import Accounting, SendState

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
