"""How many bytes may be unacknowledged. A policy: no I/O, no clock, no pages.

A transfer lets a frame go when it fits in the window, or when nothing is in flight. A *shared*
window bounds what all transfers of the pair have in flight together, and they take turns
(``credit``); any other bounds one transfer.
"""

from typing import Protocol

from kvtransfer.frame_size import LEAST_FRAME_BYTES
from kvtransfer.limits import SendLimits
from kvtransfer.path import GAIN, NARROW, PathEstimator

MAX_WINDOW_BYTES = 256 * 2**20
# On a short path the two programs, not the path, decide how much must be in flight; and there must
# always be frames that follow each other.
FLOOR_S = 0.1
MAX_FLOOR_BYTES = 16 * 2**20
# What was lost holds up what came after it for another round trip: then the window is so many times
# as large.
LOSSY = 2
LEAST_WINDOW_BYTES = 3 * LEAST_FRAME_BYTES


class WindowController(Protocol):
    @property
    def is_shared(self) -> bool: ...

    def window_bytes(self) -> int: ...


class FixedWindow:
    is_shared = False

    def __init__(self, window_bytes: int) -> None:
        self._window_bytes = window_bytes

    def window_bytes(self) -> int:
        return self._window_bytes


class StopAndWait:
    """One frame, then its acknowledgement. Nothing fits in no bytes, so each frame goes alone."""

    is_shared = False

    def window_bytes(self) -> int:
        return 0


class PathWindow:
    """Twice what the pair's path holds. ``start_bytes`` while the path is not known, and at least
    that much until its rate has stopped growing.
    """

    is_shared = True

    def __init__(self, path: PathEstimator, start_bytes: int) -> None:
        self._path = path
        self._start_bytes = start_bytes

    def window_bytes(self) -> int:
        held, rate = self._path.held_bytes, self._path.rate_bytes_per_s
        if held is None or rate is None:
            return self._start_bytes
        if self._path.is_in_doubt:
            return int(NARROW * held)
        settled = settled_window_bytes(held * (LOSSY if self._path.is_lossy else 1), rate)
        return settled if self._path.is_settled else max(settled, self._start_bytes)


def settled_window_bytes(held_bytes: float, rate_bytes_per_s: float) -> int:
    """For a path that is known to hold ``held_bytes`` without a queue."""
    floor = max(LEAST_WINDOW_BYTES, min(MAX_FLOOR_BYTES, FLOOR_S * rate_bytes_per_s))
    return int(min(max(GAIN * held_bytes, floor), MAX_WINDOW_BYTES))


def window_for(limits: SendLimits, path: PathEstimator) -> WindowController:
    if limits.window_bytes is None:
        return StopAndWait()
    if limits.is_adaptive:
        return PathWindow(path, limits.window_bytes)
    return FixedWindow(limits.window_bytes)
