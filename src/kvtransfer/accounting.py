"""Where a sender's time went, and the first-principles model of how long a transfer takes.

At any moment a transfer is in exactly one state, so the four shares add up to its duration. With
several stripes the transfer is in the busiest state of any of them (preparing, then waiting for the
transport); only when no stripe is busy does it wait for acknowledgements or for the producer.
No clock reads: every change comes with ``now``. A verdict is not drawn here.
"""

import math
from dataclasses import dataclass
from enum import StrEnum


class SendState(StrEnum):
    PRODUCER = "producer"  # waiting for pages to be computed
    PREPARE = "prepare"  # gathering, checksumming, framing
    WINDOW = "window"  # waiting for acknowledgements: window or credit is full, or all is sent
    TRANSPORT = "transport"  # waiting for the transport to take bytes, or for a connection


class Accounting:
    """Starts with the first page that is ready; nothing before that is counted."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(SendState, 0.0)
        self._busy: dict[int, SendState] = {}
        self._idle = SendState.PRODUCER
        self._since_s: float | None = None

    @property
    def state(self) -> SendState:
        busy = self._busy.values()
        if SendState.PREPARE in busy:
            return SendState.PREPARE
        return SendState.TRANSPORT if busy else self._idle

    def start(self, now: float) -> None:
        """The first page may leave. Later calls change nothing."""
        if self._since_s is None:
            self._since_s = now

    def busy(self, stripe: int, state: SendState, now: float) -> None:
        """``stripe`` is in PREPARE or TRANSPORT from now on."""
        self._charge(now)
        self._busy[stripe] = state

    def idle(self, stripe: int, now: float) -> None:
        self._charge(now)
        self._busy.pop(stripe, None)

    def waits_for(self, state: SendState, now: float) -> None:
        """What a transfer none of whose stripes is busy waits for, from now on."""
        self._charge(now)
        self._idle = state

    def seconds(self, now: float) -> dict[SendState, float]:
        """The four shares up to ``now``."""
        self._charge(now)
        return dict(self._seconds)

    def _charge(self, now: float) -> None:
        if self._since_s is None:
            return
        self._seconds[self.state] += now - self._since_s
        self._since_s = now


@dataclass(frozen=True, slots=True)
class Path:
    """R, B and o of the model: round trip, link rate, software cost per frame."""

    rtt_s: float
    link_bytes_per_s: float
    frame_cost_s: float = 0.0

    def frame_round_trip_s(self, frame_bytes: int) -> float:
        """R + S/B + o: from a frame's start to its acknowledgement."""
        return self.rtt_s + frame_bytes / self.link_bytes_per_s + self.frame_cost_s


def sequential_bytes_per_s(path: Path, frame_bytes: int) -> float:
    """S / (R + S/B + o): one frame at a time, each after the acknowledgement of the last."""
    return frame_bytes / path.frame_round_trip_s(frame_bytes)


def windowed_bytes_per_s(path: Path, frame_bytes: int, frames_in_flight: int) -> float:
    """min(B, S/o, W * S / (R + S/B + o))."""
    software = frame_bytes / path.frame_cost_s if path.frame_cost_s else math.inf
    window = frames_in_flight * sequential_bytes_per_s(path, frame_bytes)
    return min(path.link_bytes_per_s, software, window)


def frames_that_fill_the_link(path: Path, frame_bytes: int) -> int:
    """W* = ceil(1 + R * B / S). In practice 1.3 to 2 times R * B is needed."""
    return math.ceil(1 + path.rtt_s * path.link_bytes_per_s / frame_bytes)


def streamed_s(path: Path, payload_bytes: int) -> float:
    """R + M/B: all bytes after each other, then the last acknowledgement."""
    return path.rtt_s + payload_bytes / path.link_bytes_per_s
