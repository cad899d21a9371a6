"""What a sender notes: times of the largest frames, acknowledgements in trains, a mean window."""

import json
import math
from pathlib import Path

import pytest

from kvtransfer.accounting import SendState
from kvtransfer.delivery_rate import Mark
from kvtransfer.messages import PageRun, Reply
from kvtransfer.send_record import AckTrains, FrameTimes, MeanWindow, SendRecord
from kvtransfer.send_stripe import OutgoingFrame
from kvtransfer.trace import tracing
from pdcore.generation import TransferId


def frame(sequence: int, nbytes: int, sent_s: float) -> OutgoingFrame:
    mark = Mark(sent_s, num_pauses=0)
    return OutgoingFrame(sequence, PageRun(sequence, 1, 0, 1), nbytes, 1, mark)


def record() -> SendRecord:
    return SendRecord(TransferId("t"), None)


def test_frame_times_are_those_of_the_largest() -> None:
    times = FrameTimes()
    for nbytes, seconds in [(10, 9.0), (100, 2.0), (95, 4.0), (50, 0.1)]:
        times.add(nbytes, seconds)
    assert (times.frame_bytes, times.num_frames) == (100, 2)
    assert (times.least_s, times.mean_s) == (2.0, 3.0)


def test_a_train_leaves_the_first_round_trip_out() -> None:
    trains = AckTrains()
    trains.begin()
    for second in range(5):
        trains.acknowledged(10, 50.0 + second)
    assert trains.bytes_per_s == 10.0
    trains.begin()
    trains.acknowledged(10, 100.0)  # alone: no rate
    assert trains.bytes_per_s == 10.0


def test_the_window_is_weighted_by_time() -> None:
    window = MeanWindow()
    assert int(window) == 0
    window.changed(10, 5.0)
    assert int(window) == 10
    window.changed(20, 8.0)
    window.changed(20, 9.0)
    assert int(window) == (10 * 3 + 20) // 4


def test_lone_frames_are_those_that_nothing_followed() -> None:
    noted, (first, second, third) = record(), (frame(n, 10, float(n)) for n in range(3))
    noted.sent(0, first, 10, 0.0)
    noted.sent(0, second, 20, 1.0)  # beside the first
    noted.acknowledged(0, first, 10, 4.0)
    noted.acknowledged(0, second, 0, 5.0)
    noted.sent(0, third, 10, 2.0)
    noted.acknowledged(0, third, 0, 9.0)
    assert noted.first.num_frames == 2
    assert (noted.lone.num_frames, noted.lone.least_s) == (1, 7.0)


def test_the_receivers_cost_is_the_mean_over_stripes() -> None:
    noted = record()
    assert noted.receive_cost_s == 0.0
    noted.receiver_was_busy(0, Reply(0, 1, 10, 0, busy_s=1.0))
    noted.receiver_was_busy(0, Reply(0, 3, 30, 0, busy_s=4.0))
    noted.receiver_was_busy(1, Reply(0, 1, 10, 0, busy_s=2.0))
    assert noted.receive_cost_s == pytest.approx(6.0 / 4)


@pytest.mark.parametrize("busy_s", [math.nan, math.inf, -1.0])
def test_what_no_receiver_can_have_spent_is_as_if_unsaid(busy_s: float) -> None:
    noted = record()
    noted.receiver_was_busy(0, Reply(0, 1, 10, 0, busy_s=1.0))
    noted.receiver_was_busy(0, Reply(0, 2, 20, 0, busy_s=busy_s))
    assert noted.receive_cost_s == 1.0


def test_a_trace_of_it(tmp_path: Path) -> None:
    """States and windows once each time that they change."""
    file = tmp_path / "trace.jsonl"
    with tracing(str(file)):
        noted = record()
        for now in (1.0, 2.0):
            noted.changed(SendState.WINDOW, 100, now)
        one = frame(0, 10, 3.0)
        noted.sent(0, one, 10, 3.0)
        noted.acknowledged(0, one, 0, 3.5)
        noted.handed_off(4.0)
        noted.failed(ValueError("why"), 5.0)
    events = [json.loads(line) for line in file.read_text().splitlines()]
    named = ["window", "state", "sent", "acked", "handoff", "failed"]
    assert [event["event"] for event in events] == named
    assert events[1]["waits_for"] == "window"
    assert events[3]["rtt_s"] == 0.5
    assert events[5]["error"] == "ValueError: why"
