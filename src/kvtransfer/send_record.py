"""What the sender of one transfer notes as it goes: for the verdict, and for the trace.

Only facts, each with the caller's ``now``: when pages became ready, what each frame took. What they
mean is for ``kvtransfer.path_evidence`` and ``kvtransfer.verdict``. Costs a few additions a frame.
"""

import math
from dataclasses import dataclass

from kvtransfer.accounting import SendState
from kvtransfer.send_stripe import OutgoingFrame
from kvtransfer.trace import trace_of
from pdcore.generation import TransferId

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


@dataclass(frozen=True, slots=True)
class PagesReady:
    """From ``at_s`` on, pages [0, num_pages) were final."""

    at_s: float
    num_pages: int


class SendRecord:
    """``prepare`` and ``write`` are wall times of a frame at the sender; ``lone`` is from start to
    acknowledgement, of frames that left while nothing else was in flight."""

    def __init__(self, transfer_id: TransferId) -> None:
        self.pages: list[PagesReady] = []
        self.handed_off_s: float | None = None
        self.prepare = FrameTimes()
        self.write = FrameTimes()
        self.lone = FrameTimes()
        self._lone_frame: OutgoingFrame | None = None
        self._trace = trace_of(transfer_id)
        self._window_bytes = -1
        self._state: SendState | None = None

    def pages_ready(self, num_pages: int, now: float) -> None:
        self.pages.append(PagesReady(now, num_pages))

    def handed_off(self, now: float) -> None:
        """The handoff may leave: the producer has done its part."""
        self.handed_off_s = now
        self.note("handoff", now)

    def sent(self, stripe: int, frame: OutgoingFrame, in_flight_bytes: int, now: float) -> None:
        """``in_flight_bytes``: with this frame."""
        if in_flight_bytes == frame.nbytes:
            self._lone_frame = frame
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

    def changed(self, state: SendState, window_bytes: int, now: float) -> None:
        """What the transfer waits for, and its window, after something happened."""
        if self._trace is None:
            return
        if window_bytes != self._window_bytes:
            self._window_bytes = window_bytes
            self._trace.event("window", now, window_bytes=window_bytes)
        if state is not self._state:
            self._state = state
            self._trace.event("state", now, waits_for=state)

    def note(self, event: str, now: float, **fields: object) -> None:
        """An event that only the trace is told."""
        if self._trace is not None:
            self._trace.event(event, now, **fields)
