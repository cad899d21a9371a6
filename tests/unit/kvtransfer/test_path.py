"""What a pair knows of its path, from what its transfers and pings tell it."""

import pytest

from kvtransfer.delivery_rate import Mark
from kvtransfer.path import GAIN, PathEstimator

FRAME = 2**20
RTT_S = 0.05


class Pair:
    """A line of ``frames_per_s``, kept full by ``num_in_flight`` frames."""

    def __init__(self, num_in_flight: int = 10) -> None:
        self.path = PathEstimator()
        self.now = 0.0
        self.marks: list[Mark] = []
        self.path.on_ping(RTT_S, now=0.0)
        self.send(num_in_flight)

    def send(self, num: int) -> None:
        self.marks += [self.path.sent(FRAME, now=self.now) for _ in range(num)]

    def arrive(self, num: int, frames_per_s: float, *, resend: bool = True) -> None:
        for _ in range(num):
            self.now += 1 / frames_per_s
            self.path.delivered(self.marks.pop(0), FRAME, now=self.now)
            self.send(int(resend))

    def ping(self, rtt_s: float) -> None:
        self.path.on_ping(rtt_s, now=self.now)


def test_nothing_is_known_at_first() -> None:
    path = PathEstimator()
    assert path.rtt_s is path.rate_bytes_per_s is path.held_bytes is path.target_bytes is None
    path.on_ping(RTT_S, now=0.0)
    assert path.rtt_s == RTT_S and path.target_bytes is None


def test_what_it_holds_is_round_trip_times_rate() -> None:
    pair = Pair()
    pair.arrive(200, 100)
    assert pair.path.rate_bytes_per_s == pytest.approx(100 * FRAME)
    assert pair.path.held_bytes == pytest.approx(RTT_S * 100 * FRAME)
    assert pair.path.target_bytes == pytest.approx(GAIN * RTT_S * 100 * FRAME, abs=1)
    assert pair.path.is_settled
    assert pair.path.in_flight_bytes == 10 * FRAME


def test_a_slower_line_under_a_queue_is_a_doubt_and_then_a_slower_line() -> None:
    """While in doubt the latest rate counts, and when the path is as long as before, for good."""
    pair = Pair()
    pair.arrive(200, 100)
    pair.arrive(5, 20)
    pair.ping(0.25)
    assert pair.path.is_in_doubt and pair.path.rtt_s == RTT_S
    assert pair.path.rate_bytes_per_s == pytest.approx(20 * FRAME)
    pair.arrive(10, 20, resend=False)
    pair.ping(0.5)
    pair.ping(RTT_S)
    assert not pair.path.is_in_doubt
    assert pair.path.rate_bytes_per_s == pytest.approx(20 * FRAME)
    assert pair.path.rtt_s == RTT_S


def test_a_longer_path_is_a_doubt_and_then_a_longer_path_of_the_same_rate() -> None:
    pair = Pair()
    pair.arrive(200, 100)
    pair.arrive(10, 50)  # a window a round trip
    pair.ping(0.2)
    assert pair.path.is_in_doubt
    pair.arrive(10, 50, resend=False)
    pair.ping(0.2)
    pair.ping(0.2)
    assert not pair.path.is_in_doubt
    assert pair.path.rtt_s == 0.2
    assert pair.path.rate_bytes_per_s == pytest.approx(100 * FRAME)


def test_what_is_sent_while_in_doubt_lowers_nothing() -> None:
    pair = Pair()
    pair.arrive(200, 100)
    pair.ping(0.3)
    assert pair.path.is_in_doubt
    pair.arrive(10, 100, resend=False)
    pair.send(1)
    for _ in range(100):
        pair.arrive(1, 5)
    assert pair.path.rate_bytes_per_s == pytest.approx(100 * FRAME)


def test_a_cut_does_not_look_like_a_slow_line() -> None:
    pair = Pair()
    pair.arrive(200, 100)
    pair.now += 2.0
    pair.arrive(20, 100)
    pair.ping(2.1)
    pair.arrive(5, 100)
    pair.ping(RTT_S)
    assert pair.path.rate_bytes_per_s == pytest.approx(100 * FRAME)


def test_frames_of_a_stream_that_is_gone_are_in_flight_no_longer() -> None:
    pair = Pair()
    pair.path.withdrawn(4 * FRAME, 4)
    assert pair.path.in_flight_bytes == 6 * FRAME
    with pytest.raises(AssertionError):
        pair.path.withdrawn(7 * FRAME, 7)
