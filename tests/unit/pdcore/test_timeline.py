"""A node's spans: offsets from the request's arrival here, in order, also when a block fails."""

import pytest

from pdcore import timeline
from pdcore.timeline import TimelineRecorder
from pdwire.v1.generation_pb2 import TransferReport


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(100.0)
    monkeypatch.setattr(timeline, "monotonic", clock)
    return clock


def spans(recorder: TimelineRecorder) -> list[tuple[str, float, float]]:
    return [(span.name, span.start_s, span.duration_s) for span in recorder.to_proto().spans]


def test_spans_are_offsets_from_the_arrival(clock: Clock) -> None:
    recorder = TimelineRecorder("p")
    recorder.add("queue", 100.5, 102.0)
    clock.now = 103.0
    with recorder.span("prefill"):
        clock.now = 104.5
    assert spans(recorder) == [("queue", 0.5, 1.5), ("prefill", 3.0, 1.5)]


def test_a_block_that_fails_has_its_span(clock: Clock) -> None:
    recorder = TimelineRecorder("p")
    with pytest.raises(KeyError), recorder.span("receive"):
        clock.now = 101.0
        raise KeyError
    assert spans(recorder) == [("receive", 0.0, 1.0)]


def test_the_node_and_its_transfer_are_part_of_it(clock: Clock) -> None:
    recorder = TimelineRecorder("p1")
    assert not recorder.to_proto().HasField("transfer")
    recorder.transfer = TransferReport(mode="bulk", frames=3)
    message = recorder.to_proto()
    assert message.node == "p1"
    assert (message.transfer.mode, message.transfer.frames) == ("bulk", 3)
