"""What a ping says, with and without a queue of ours before it."""

import pytest

from kvtransfer.round_trip import NUM_PINGS, OVERDUE_S, PATIENCE, Finding, Ping, RoundTrip

FULL_S = 0.1  # what a window of twice what the path holds takes to arrive


def known(seconds: float = 0.05) -> RoundTrip:
    round_trip = RoundTrip()
    round_trip.on_ping(Ping(seconds), now=0.0)
    return round_trip


def behind(rtt_s: float, queue_s: float = FULL_S, *, is_slower: bool = False) -> Ping:
    return Ping(rtt_s, queue_s=queue_s, is_narrow=False, is_slower=is_slower)


def test_unknown_before_the_first_ping() -> None:
    round_trip = RoundTrip()
    assert round_trip.seconds is None and not round_trip.is_doubted
    assert round_trip.on_ping(behind(0.3), now=0.0) is Finding.CONFIRMED
    assert round_trip.seconds == 0.3


def test_the_smallest_of_the_last_few() -> None:
    round_trip = known()
    assert round_trip.on_ping(behind(0.04), now=1.0) is Finding.CONFIRMED
    assert round_trip.seconds == 0.04
    for _ in range(NUM_PINGS):
        round_trip.on_ping(behind(0.045), now=2.0)
    assert round_trip.seconds == 0.045


def test_a_ping_behind_a_full_window_says_nothing() -> None:
    round_trip = known()
    for number in range(50):
        assert round_trip.on_ping(behind(0.1), now=0.1 * number) is Finding.NOTHING
    assert round_trip.seconds == 0.05 and not round_trip.is_doubted


def test_nor_does_one_that_two_busy_programs_held_up() -> None:
    round_trip = known(0.0003)
    for number in range(50):
        round_trip.on_ping(behind(0.008, 0.001), now=0.1 * number)
    assert round_trip.seconds == 0.0003 and not round_trip.is_doubted


def test_a_short_path_that_becomes_a_little_longer_is_believed_without_doubt() -> None:
    round_trip = known(0.001)
    for _ in range(NUM_PINGS):
        assert round_trip.on_ping(Ping(0.005), now=1.0) is Finding.CONFIRMED
    assert round_trip.seconds == 0.005


@pytest.mark.parametrize(
    "ping",
    [behind(0.2), behind(0.1, is_slower=True), Ping(0.1)],
    ids=["longer than the queue explains", "less arrives", "nothing was in flight"],
)
def test_what_raises_a_doubt(ping: Ping) -> None:
    round_trip = known()
    assert round_trip.on_ping(ping, now=1.0) is Finding.NOTHING
    assert round_trip.is_doubted and round_trip.seconds == 0.05


def test_longer_pings_for_long_raise_a_doubt() -> None:
    round_trip = known()
    round_trip.on_ping(behind(0.1), now=OVERDUE_S)
    assert not round_trip.is_doubted
    round_trip.on_ping(behind(0.1), now=OVERDUE_S + 0.1)
    assert round_trip.is_doubted


def doubted() -> RoundTrip:
    round_trip = known()
    round_trip.on_ping(behind(0.2), now=1.0)
    assert round_trip.is_doubted
    return round_trip


def test_a_doubt_waits_for_a_narrow_flight() -> None:
    round_trip = doubted()
    assert round_trip.on_ping(behind(0.2), now=1.2) is Finding.NOTHING
    assert round_trip.is_doubted


def test_the_path_is_longer() -> None:
    round_trip = doubted()
    assert round_trip.on_ping(Ping(0.205, queue_s=0.01), now=1.2) is Finding.LONGER
    assert round_trip.seconds == 0.205 and not round_trip.is_doubted


@pytest.mark.parametrize("ping", [behind(0.06), Ping(0.055), Ping(0.09, queue_s=0.04)])
def test_the_path_is_as_before(ping: Ping) -> None:
    round_trip = doubted()
    assert round_trip.on_ping(ping, now=1.2) is Finding.AS_BEFORE
    assert round_trip.seconds == 0.05 and not round_trip.is_doubted


def test_a_flight_that_does_not_become_narrow_is_not_waited_for_for_ever() -> None:
    """Another mode may keep the path full."""
    round_trip = doubted()
    for _ in range(PATIENCE):
        assert round_trip.on_ping(behind(0.3), now=2.0) is Finding.NOTHING
    assert round_trip.on_ping(behind(0.3), now=2.0) is Finding.LONGER
    assert round_trip.seconds == 0.3
