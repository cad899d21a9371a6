"""The measured rate against a link in virtual time: a line, and a round trip behind it."""

from collections import deque

import pytest

from kvtransfer.rate_rounds import RateRounds

MESSAGE = 2**16
MIB = 2**20


def measure(rate: float, rtt_s: float, max_bytes: int, burst: int = 1) -> tuple[RateRounds, float]:
    """Acknowledgements come ``burst`` at a time, when the last of them is due."""
    rounds = RateRounds(rtt_s, max_bytes, now=0.0)
    now = line_free_s = 0.0
    in_flight: deque[float] = deque()  # when each message is acknowledged
    while not rounds.is_over or in_flight:
        while rounds.room_bytes() >= MESSAGE:
            rounds.sent(MESSAGE, now=now)
            line_free_s = max(line_free_s, now) + MESSAGE / rate
            in_flight.append(line_free_s + rtt_s)
        acked = [in_flight.popleft() for _ in range(min(burst, len(in_flight)))]
        if not acked:
            break
        now = acked[-1]
        for _ in acked:
            rounds.acked(MESSAGE, now=now)
    return rounds, now


@pytest.mark.parametrize("rtt_s", [0.02, 0.05, 0.2])
@pytest.mark.parametrize("rate", [12.5e6, 125e6, 625e6])
@pytest.mark.parametrize("burst", [1, 4])
def test_the_rate_is_that_of_the_line(rate: float, rtt_s: float, burst: int) -> None:
    rounds, seconds = measure(rate, rtt_s, max_bytes=4096 * MIB, burst=burst)
    assert rounds.is_warm
    assert rounds.rate_bytes_per_s == pytest.approx(rate, rel=0.05)
    assert seconds < 40 * max(rtt_s, 0.1)


def test_never_more_than_max_bytes_and_then_it_says_that_it_is_not_steady() -> None:
    rounds, _ = measure(1.25e9, 0.1, max_bytes=32 * MIB)
    assert rounds.sent_bytes <= 32 * MIB
    assert not rounds.is_warm
    assert 0 < rounds.rate_bytes_per_s < 1.25e9


def test_the_bytes_in_flight_follow_the_rate() -> None:
    slow, _ = measure(1.25e6, 0.02, max_bytes=64 * MIB)
    fast, _ = measure(1.25e8, 0.2, max_bytes=1024 * MIB)
    assert slow.window_bytes == MIB
    assert 2 * 1.25e8 * 0.2 < fast.window_bytes < 3 * 1.25e8 * 0.2


def test_nothing_was_measured_before_the_first_round() -> None:
    rounds = RateRounds(0.05, MIB, now=0.0)
    assert rounds.rate_bytes_per_s == 0.0 and not rounds.is_over


def test_bytes_that_fill_no_round_still_tell_a_rate() -> None:
    rounds, seconds = measure(125e6, 0.02, max_bytes=MIB)
    assert seconds < 0.1
    assert not rounds.is_warm
    assert rounds.rate_bytes_per_s == pytest.approx(MIB / seconds)


def test_a_round_of_less_than_the_best_is_steady_a_better_one_is_not() -> None:
    rounds = RateRounds(0.05, 1024 * MIB, now=0.0)
    rounds.sent(1024 * MIB - 2**20, now=0.0)
    for second, nbytes in enumerate((10, 9, 10, 20, 19, 20, 21), start=1):
        assert not rounds.is_warm
        rounds.acked(nbytes * MIB, now=float(second))
    assert rounds.is_warm
    assert rounds.rate_bytes_per_s == pytest.approx(20 * MIB)
