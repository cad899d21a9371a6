"""The first-principles model of how long a transfer takes: its path, its shape, the formulas.

R: round trip, B: link bytes/s, S: bytes of a frame, o: software cost of a frame, W: frames in
flight, M: payload. ``modelled_s`` serves every mode: a closed formula when all pages are ready at
once, else the same rules frame by frame. The model knows no loss, no slow start and no other
transfer on the path.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

MAX_MODELLED_FRAMES = 128  # more are modelled in groups: an error below one part in as many


@dataclass(frozen=True, slots=True)
class Path:
    """R, B and o. ``receive_cost_s`` is the receiver's part of ``frame_cost_s``: it overlaps the
    sender's when frames follow each other. ``restart_s`` is what TCP adds to the round trip of a
    frame that finds it idle: it paces such a frame, or takes several round trips for it."""

    rtt_s: float
    link_bytes_per_s: float
    frame_cost_s: float = 0.0
    receive_cost_s: float = 0.0
    restart_s: float = 0.0

    def frame_round_trip_s(self, frame_bytes: float) -> float:
        """R + S/B + o: from a frame's start to its acknowledgement."""
        line_s = frame_bytes / self.link_bytes_per_s
        return self.rtt_s + self.restart_s + line_s + self.frame_cost_s

    def frame_interval_s(self, frame_bytes: float) -> float:
        """Between frames that wait for nothing: the slowest of sender, line and receiver."""
        send_cost_s = self.frame_cost_s - self.receive_cost_s
        return max(frame_bytes / self.link_bytes_per_s, send_cost_s, self.receive_cost_s)


@dataclass(frozen=True, slots=True)
class Step:
    """The producer's: ``nbytes`` more may leave, ``at_s`` after the transfer's time began."""

    at_s: float
    nbytes: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What one transfer sends, and by which numbers. ``window_bytes`` 0: one frame at a time.

    ``handoff_s``: when the last frame of all, which has no pages, was there to be sent.
    """

    steps: tuple[Step, ...]
    frame_bytes: int
    window_bytes: int
    handoff_s: float = 0.0

    @property
    def page_bytes(self) -> int:
        return sum(step.nbytes for step in self.steps)


def modelled_s(shape: Shape, path: Path) -> float:
    """From the transfer's first possible frame to its acknowledged commit."""
    if len(shape.steps) == 1:
        acked_s = shape.steps[0].at_s + _all_ready_s(shape, path)
    else:
        acked_s = _step_by_step_s(shape, path)
    return max(acked_s, shape.handoff_s + path.rtt_s)


def sequential_bytes_per_s(path: Path, frame_bytes: int) -> float:
    """S / (R + S/B + o): one frame at a time, each after the acknowledgement of the last."""
    return frame_bytes / path.frame_round_trip_s(frame_bytes)


def windowed_bytes_per_s(path: Path, frame_bytes: int, frames_in_flight: int) -> float:
    """min(B, S/o, W * S / (R + S/B + o))."""
    slowest_s = max(path.receive_cost_s, path.frame_cost_s - path.receive_cost_s)
    software = frame_bytes / slowest_s if slowest_s else math.inf
    window = frames_in_flight * sequential_bytes_per_s(path, frame_bytes)
    return min(path.link_bytes_per_s, software, window)


def frames_that_fill_the_link(path: Path, frame_bytes: int) -> int:
    """W* = ceil(1 + R * B / S). In practice 1.3 to 2 times R * B is needed."""
    return math.ceil(1 + path.rtt_s * path.link_bytes_per_s / frame_bytes)


def streamed_s(path: Path, payload_bytes: int) -> float:
    """R + M/B: all bytes after each other, then the last acknowledgement."""
    return path.rtt_s + payload_bytes / path.link_bytes_per_s


def _all_ready_s(shape: Shape, path: Path) -> float:
    """N equal frames, W in flight: whole windows wait for a round trip, or for the slowest stage.

    Frame i starts one interval after its predecessor, and not before frame i - W is acknowledged.
    """
    num_frames = math.ceil(shape.page_bytes / shape.frame_bytes)
    frame_bytes = shape.page_bytes / num_frames
    in_flight = max(1, int(shape.window_bytes // frame_bytes))
    interval_s = path.frame_interval_s(frame_bytes)
    round_trip_s = path.frame_round_trip_s(frame_bytes)
    windows, rest = divmod(num_frames - 1, in_flight)
    return windows * max(round_trip_s, in_flight * interval_s) + rest * interval_s + round_trip_s


def _step_by_step_s(shape: Shape, path: Path) -> float:
    """When the last frame is acknowledged: each starts when it is ready, the sender is free, and
    the window has room; sender, line and receiver each take one frame after the other."""
    sender_s = line_s = receiver_s = 0.0  # when each is free
    unacked: deque[tuple[float, float]] = deque()  # (acknowledged at, bytes)
    in_flight_bytes = 0.0
    for ready_s, nbytes, num_frames in _frames(shape):
        start_s = max(ready_s, sender_s)
        while unacked and in_flight_bytes + nbytes > shape.window_bytes:
            acked_s, acked_bytes = unacked.popleft()
            in_flight_bytes -= acked_bytes
            start_s = max(start_s, acked_s)
        sender_s = start_s + num_frames * (path.frame_cost_s - path.receive_cost_s)
        line_s = max(sender_s, line_s) + nbytes / path.link_bytes_per_s
        receiver_s = max(line_s + path.rtt_s / 2, receiver_s) + num_frames * path.receive_cost_s
        unacked.append((receiver_s + path.rtt_s / 2, nbytes))
        in_flight_bytes += nbytes
    return receiver_s + path.rtt_s / 2


def _frames(shape: Shape) -> Iterator[tuple[float, float, int]]:
    """(ready at, bytes, frames) of each frame, or of each group of frames where there are many."""
    total = math.ceil(shape.page_bytes / shape.frame_bytes)
    in_flight = shape.window_bytes // shape.frame_bytes
    group = max(1, min(total // MAX_MODELLED_FRAMES, in_flight // 16))
    for step in shape.steps:
        num_frames = math.ceil(step.nbytes / shape.frame_bytes)
        for first in range(0, num_frames, group):
            frames = min(group, num_frames - first)
            yield step.at_s, step.nbytes * frames / num_frames, frames
