"""What the sender of one transfer notes as it goes: for the verdict, and for the trace.

Only facts, each with the caller's ``now``: when pages became ready, what each frame took. What they
mean is for ``kvtransfer.path_evidence`` and ``kvtransfer.verdict``. Costs a few additions a frame.
"""

import math
from dataclasses import dataclass

from kvtransfer.accounting import SendState
from kvtransfer.messages import Reply
from kvtransfer.send_stripe import OutgoingFrame
from kvtransfer.trace import trace_of
from pdcore.generation import TransferId

TRAIN_FRAMES = 2  # acknowledgements after the first that make a rate
SAME_SIZE = 0.9  # a frame that is smaller than this share of the largest says nothing of those


@dataclass(slots=True)
class FrameTimes:
    """Durations of the largest frames."""

    frame_bytes: int = 0
    num_frames: int = 0
    total_s: float = 0.0
    least_s: float = math.inf

    @property
    def mean_s(self) -> float:
        return self.total_s / self.num_frames if self.num_frames else 0.0

    def add(self, nbytes: int, seconds: float) -> None:
        if nbytes * SAME_SIZE > self.frame_bytes:
            self.frame_bytes, self.num_frames = nbytes, 0
            self.total_s, self.least_s = 0.0, math.inf
        elif nbytes < self.frame_bytes * SAME_SIZE:
            return
        self.num_frames += 1
        self.total_s += seconds
        self.least_s = min(self.least_s, seconds)


class AckTrains:
    """How fast acknowledgements came in, the round trip before the first left out. A train begins
    with a frame that leaves while nothing is in flight; its rate counts all its bytes but those of
    the first frame, so a few that come together do not look like a fast line."""

    def __init__(self) -> None:
        self._best_bytes_per_s = 0.0
        self._num_frames = -1  # after the first
        self._num_bytes = 0
        self._first_s = self._last_s = 0.0

    @property
    def bytes_per_s(self) -> float:
        """Of the fastest train; 0.0 before there was one."""
        seconds = self._last_s - self._first_s
        if self._num_frames < TRAIN_FRAMES or seconds <= 0:
            return self._best_bytes_per_s
        return max(self._best_bytes_per_s, self._num_bytes / seconds)

    def begin(self) -> None:
        self._best_bytes_per_s = self.bytes_per_s
        self._num_frames, self._num_bytes = -1, 0

    def acknowledged(self, nbytes: int, now: float) -> None:
        self._num_frames += 1
        if not self._num_frames:
            self._first_s = now
        else:
            self._num_bytes += nbytes
        self._last_s = now


class MeanWindow:
    """Of a window that may change while the transfer runs, weighted by time."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._first_s: float | None = None
        self._last_s = 0.0
        self._byte_seconds = 0.0

    def __int__(self) -> int:
        seconds = self._last_s - (self._first_s or 0.0)
        return int(self._byte_seconds / seconds) if self._byte_seconds else self.nbytes

    def changed(self, nbytes: int, now: float) -> None:
        """``nbytes`` from now on."""
        if self._first_s is None:
            self._first_s = self._last_s = now
        self._byte_seconds += self.nbytes * (now - self._last_s)
        self.nbytes, self._last_s = nbytes, now


@dataclass(frozen=True, slots=True)
class PagesReady:
    """From ``at_s`` on, pages [0, num_pages) were final."""

    at_s: float
    num_pages: int


class SendRecord:
    """``prepare`` and ``write`` are wall times of a frame at the sender; ``first`` is from start to
    acknowledgement, of frames that left while nothing was in flight, and ``lone`` the same of those
    that nothing followed before it came. ``rate_before_...``: what
    the pair knew of its rate when the transfer came to it, 0.0 for nothing."""

    def __init__(self, transfer_id: TransferId, rate_before_bytes_per_s: float | None) -> None:
        self.rate_before_bytes_per_s = rate_before_bytes_per_s or 0.0
        self.pages: list[PagesReady] = []
        self.handed_off_s: float | None = None
        self.prepare = FrameTimes()
        self.write = FrameTimes()
        self.first = FrameTimes()
        self.lone = FrameTimes()
        self.trains = AckTrains()
        self.window = MeanWindow()
        self._first_frame: OutgoingFrame | None = None
        self._lone_frame: OutgoingFrame | None = None
        self._receiver: dict[int, Reply] = {}  # the last reply of each stripe
        self._trace = trace_of(transfer_id)
        self._state: SendState | None = None

    def pages_ready(self, num_pages: int, now: float) -> None:
        self.pages.append(PagesReady(now, num_pages))

    def handed_off(self, now: float) -> None:
        """The handoff may leave: the producer has done its part."""
        self.handed_off_s = now
        self.note("handoff", now)

    def sent(self, stripe: int, frame: OutgoingFrame, in_flight_bytes: int, now: float) -> None:
        """``in_flight_bytes``: with this frame."""
        is_first = in_flight_bytes == frame.nbytes
        self._lone_frame = frame if is_first else None
        if is_first:
            self._first_frame = frame
            self.trains.begin()
        if self._trace is not None:
            run = frame.run
            self._trace.event(
                "sent",
                now,
                stripe=stripe,
                sequence=frame.sequence,
                bytes=frame.nbytes,
                first_page=run.first_page,
                num_pages=run.num_pages,
                first_layer=run.first_layer,
                num_layers=run.num_layers,
                in_flight_bytes=in_flight_bytes,
            )

    def prepared(self, nbytes: int, seconds: float) -> None:
        self.prepare.add(nbytes, seconds)

    def written(self, nbytes: int, seconds: float) -> None:
        self.write.add(nbytes, seconds)

    def acknowledged(
        self, stripe: int, frame: OutgoingFrame, in_flight_bytes: int, now: float
    ) -> None:
        """``in_flight_bytes``: without this frame."""
        ack_s = now - frame.sent_s
        self.trains.acknowledged(frame.nbytes, now)
        if frame is self._first_frame:
            self.first.add(frame.nbytes, ack_s)
        if frame is self._lone_frame:
            self.lone.add(frame.nbytes, ack_s)
        if self._trace is not None:
            self._trace.event(
                "acked",
                now,
                stripe=stripe,
                sequence=frame.sequence,
                bytes=frame.nbytes,
                rtt_s=round(ack_s, 6),
                in_flight_bytes=in_flight_bytes,
            )

    def receiver_was_busy(self, stripe: int, reply: Reply) -> None:
        if 0 <= reply.busy_s < math.inf:  # whatever a receiver says, a verdict is made of times
            self._receiver[stripe] = reply

    @property
    def receive_cost_s(self) -> float:
        """What the receiver says of one frame, 0.0 if nothing."""
        replies = self._receiver.values()
        num_frames = sum(reply.acked_frames for reply in replies)
        return sum(reply.busy_s for reply in replies) / num_frames if num_frames else 0.0

    def changed(self, state: SendState, window_bytes: int, now: float) -> None:
        """What the transfer waits for, and its window, after something happened."""
        if self._trace is not None and window_bytes != self.window.nbytes:
            self._trace.event("window", now, window_bytes=window_bytes)
        self.window.changed(window_bytes, now)
        if self._trace is not None and state is not self._state:
            self._state = state
            self._trace.event("state", now, waits_for=state)

    def failed(self, error: BaseException | None, now: float) -> None:
        self.note("failed", now, error=f"{type(error).__name__}: {error}")

    def note(self, event: str, now: float, **fields: object) -> None:
        """An event that only the trace is told."""
        if self._trace is not None:
            self._trace.event(event, now, **fields)
