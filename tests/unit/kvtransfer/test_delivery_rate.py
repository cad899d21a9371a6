"""How fast a pair delivers: samples that may lower the estimate, and samples that may not."""

import pytest

from kvtransfer.delivery_rate import DeliveryRate, Mark

SPAN_S, HORIZON_S = 0.1, 0.4
FRAME = 1000


class Flow:
    """Frames that arrive at a steady pace, each one flight after it left."""

    def __init__(self) -> None:
        self.rate = DeliveryRate()
        self.now = 0.0
        self.in_flight: list[Mark] = []

    def send(self, num: int) -> None:
        for _ in range(num):
            self.in_flight.append(self.rate.sent(is_first=not self.in_flight, now=self.now))

    def arrive(self, num: int, spacing_s: float, *, resend: bool = True) -> None:
        """Each arrival lets another frame leave, if ``resend``."""
        for _ in range(num):
            self.now += spacing_s
            mark = self.in_flight.pop(0)
            self.rate.delivered(mark, FRAME, span_s=SPAN_S, horizon_s=HORIZON_S, now=self.now)
            self.send(int(resend))

    @property
    def frames_per_s(self) -> float | None:
        rate = self.rate.bytes_per_s
        return None if rate is None else rate / FRAME


def steady(frames_per_s: float = 100.0) -> Flow:
    flow = Flow()
    flow.send(10)
    flow.arrive(200, 1 / frames_per_s)
    return flow


def test_the_first_frames_are_counted_from_when_they_left() -> None:
    flow = Flow()
    assert flow.frames_per_s is None
    flow.send(2)
    flow.arrive(1, 0.05)
    assert flow.frames_per_s == pytest.approx(20)


def test_a_steady_flow() -> None:
    assert steady().frames_per_s == pytest.approx(100)
    assert steady().rate.latest_bytes_per_s == pytest.approx(100 * FRAME)


def test_a_faster_line_counts_at_once_and_a_slower_one_after_the_horizon() -> None:
    flow = steady()
    flow.arrive(30, 0.005)
    assert flow.frames_per_s == pytest.approx(200)
    flow.arrive(int(0.9 * HORIZON_S / 0.02), 0.02)
    assert flow.frames_per_s == pytest.approx(200)
    flow.arrive(int((0.2 * HORIZON_S + SPAN_S) / 0.02), 0.02)
    assert flow.frames_per_s == pytest.approx(50)


@pytest.mark.parametrize("busy_s", [0.03, 0.15])
def test_a_burst_of_acknowledgements_is_no_fast_line(busy_s: float) -> None:
    """The loop was busy, read several at once and sent as many; the next come a little later."""
    flow = steady()
    for _ in range(5):
        flow.now += busy_s
        flow.arrive(10, 1e-6)
        flow.arrive(20, 0.01)
    assert flow.frames_per_s is not None
    assert flow.frames_per_s <= 200


def test_what_a_pause_kept_small_lowers_nothing() -> None:
    flow = steady()
    for _ in range(50):
        flow.arrive(len(flow.in_flight), 0.01, resend=False)
        flow.rate.pause()
        flow.now += 1.0
        flow.send(2)
        flow.arrive(2, 0.05, resend=False)
    assert flow.frames_per_s == pytest.approx(100)


def test_frames_that_left_before_a_pause_count_in_full() -> None:
    """The end of a transfer tells as much as its middle."""
    flow = steady(200.0)
    flow.send(100)
    flow.rate.pause()
    flow.arrive(100, 0.01, resend=False)
    assert flow.frames_per_s == pytest.approx(100)


def test_a_long_flight_after_a_pause_counts_once_it_flows() -> None:
    flow = steady(200.0)
    flow.arrive(10, 0.005, resend=False)
    flow.rate.pause()
    flow.now += 1.0
    flow.send(100)
    flow.now += 0.05
    flow.arrive(100, 0.01, resend=False)
    assert flow.frames_per_s == pytest.approx(100)


def test_a_sender_that_holds_back_may_show_a_faster_line_never_a_slower_one() -> None:
    flow = steady()
    for spacing_s, seen in ((0.01, 100), (0.05, 100), (0.005, 200), (0.05, 200)):
        for _ in range(100):
            flow.rate.pause()
            flow.arrive(1, spacing_s)
        assert flow.frames_per_s == pytest.approx(seen, rel=0.02)


def test_silence_is_no_slow_line() -> None:
    flow = steady()
    flow.now += 2.0
    flow.arrive(200, 0.01)
    assert flow.frames_per_s == pytest.approx(100)
    flow.now += 2.0
    flow.arrive(5, 0.01)
    assert flow.rate.latest_bytes_per_s == pytest.approx(100 * FRAME)


def test_a_silence_in_which_pings_come_back_is_a_slow_line() -> None:
    """What arrives at its end was held up by losses, and comes at once."""
    flow = steady()
    flow.rate.answered(0.1)
    flow.arrive(1, 1.0)
    flow.arrive(9, 0.01)
    assert flow.frames_per_s == pytest.approx(10, rel=0.15)
    flow.arrive(20, 0.1)
    assert flow.frames_per_s == pytest.approx(10, rel=0.15)


def test_a_slow_line_that_stops_again_is_still_slow() -> None:
    """Losses on losses: the second silence is too short for a ping to come back in time."""
    flow = steady()
    flow.rate.answered(0.1)
    flow.arrive(1, 1.0)
    flow.rate.answered(0.24)
    flow.arrive(1, 0.25)
    flow.arrive(8, 0.001)
    flow.now += SPAN_S
    flow.arrive(1, 0.0)
    assert flow.frames_per_s == pytest.approx(10, rel=0.25)


def test_a_ping_that_was_cut_off_too_says_nothing() -> None:
    flow = steady()
    flow.rate.answered(0.9)
    flow.arrive(1, 1.0)
    flow.arrive(9, 0.0)
    assert flow.frames_per_s == pytest.approx(100)


def test_what_a_silence_held_up_is_no_fast_line() -> None:
    flow = steady()
    flow.now += 2.0
    flow.arrive(10, 1e-6)
    flow.arrive(20, 0.01)
    assert flow.frames_per_s == pytest.approx(100, rel=0.15)


@pytest.mark.parametrize(("forgets", "frames_per_s"), [(False, 100), (True, 25)])
def test_nothing_expires_while_held(forgets: bool, frames_per_s: float) -> None:
    """Forgetting leaves the best from since it was held."""
    flow = steady()
    flow.arrive(4, 0.04)
    flow.rate.hold()
    flow.arrive(50, 0.04)
    flow.arrive(50, 0.05)
    assert flow.frames_per_s == pytest.approx(100)
    flow.rate.release(forgets=forgets)
    assert flow.frames_per_s == pytest.approx(frames_per_s)
    flow.arrive(50, 0.05)
    assert flow.frames_per_s == pytest.approx(20)


def test_forgetting_leaves_the_latest_at_least() -> None:
    flow = steady()
    flow.rate.hold()
    flow.rate.release(forgets=True)
    assert flow.frames_per_s == pytest.approx(100)


def test_settled_when_it_no_longer_grows() -> None:
    flow = Flow()
    flow.send(10)
    spacing_s = 0.05
    while spacing_s > 0.01:
        flow.arrive(round(0.3 / spacing_s), spacing_s)
        assert not flow.rate.is_settled
        spacing_s *= 0.6
    flow.arrive(round((HORIZON_S + 2 * SPAN_S) / spacing_s), spacing_s)
    assert flow.rate.is_settled
