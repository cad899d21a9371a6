"""Warming a path, over a simulated one: a slow start, then a line rate."""

from collections import deque

from kvtransfer.warm_rounds import (
    FIRST_WINDOW_BYTES,
    KNOWN_GAIN,
    MIN_MESSAGE_BYTES,
    NEAR,
    START_GAIN,
    WarmRounds,
)

RTT_S = 0.05
MESSAGE = MIN_MESSAGE_BYTES


def warm(
    rate_bytes_per_s: float, max_bytes: int, known_bytes_per_s: float | None = None
) -> tuple[WarmRounds, float]:
    """Messages through one queue of that rate, each acknowledged a round trip after it left.

    Returns the rounds and the greatest number of bytes that were in flight.
    """
    rounds = WarmRounds(RTT_S, max_bytes, known_bytes_per_s=known_bytes_per_s, now=0.0)
    now, line_free_s, most = 0.0, 0.0, 0
    acks: deque[float] = deque()
    while not rounds.is_over:
        while rounds.room_bytes() >= MESSAGE:
            rounds.sent(MESSAGE, now=now)
            line_free_s = max(line_free_s, now) + MESSAGE / rate_bytes_per_s
            acks.append(line_free_s + RTT_S)
        most = max(most, rounds.in_flight_bytes)
        if rounds.is_over:
            break
        now = acks.popleft()
        rounds.acked(MESSAGE, now=now)
    return rounds, most


def test_finds_the_rate_of_the_line() -> None:
    rate = 125e6
    rounds, most = warm(rate, max_bytes=2**30)
    assert rounds.is_warm
    assert 0.9 * rate <= rounds.rate_bytes_per_s <= 1.01 * rate
    assert most <= 1.05 * START_GAIN * rate * RTT_S


def test_costs_about_eight_times_what_the_path_holds() -> None:
    rate = 125e6
    rounds, _ = warm(rate, max_bytes=2**30)
    assert 4 * rate * RTT_S <= rounds.sent_bytes <= 12 * rate * RTT_S


def test_a_slow_line_is_found_at_once() -> None:
    rounds, most = warm(FIRST_WINDOW_BYTES / RTT_S / 4, max_bytes=2**30)
    assert rounds.is_warm
    assert most <= FIRST_WINDOW_BYTES
    assert rounds.sent_bytes < 10 * FIRST_WINDOW_BYTES


def test_never_more_than_the_cap() -> None:
    cap = 10 * MESSAGE + 1
    rounds, _ = warm(1e12, max_bytes=cap)
    assert not rounds.is_warm
    assert cap - MESSAGE < rounds.sent_bytes <= cap


def test_a_cap_below_one_message_sends_nothing() -> None:
    assert WarmRounds(RTT_S, MESSAGE - 1, now=0.0).is_over


def test_a_path_whose_rate_is_known_is_asked_for_no_more() -> None:
    rate = 125e6
    rounds, most = warm(rate, max_bytes=2**30, known_bytes_per_s=rate)
    assert rounds.is_warm
    assert rounds.rate_bytes_per_s >= NEAR * rate
    assert most <= KNOWN_GAIN * rate * RTT_S + MESSAGE
    assert rounds.sent_bytes <= 3.5 * rate * RTT_S


def test_a_known_rate_that_the_path_no_longer_has_is_not_waited_for() -> None:
    rate = 12.5e6
    rounds, _ = warm(rate, max_bytes=2**30, known_bytes_per_s=10 * rate)
    assert rounds.is_warm
    assert rounds.rate_bytes_per_s <= 1.01 * rate
