"""How many bytes of one transfer may be unacknowledged. A policy: no I/O, no clock, no pages.

The sender lets a frame go when it fits in the window, or when nothing of the transfer is in flight.
"""

from typing import Protocol

from kvtransfer.limits import SendLimits


class WindowController(Protocol):
    def window_bytes(self) -> int: ...

    def on_ack(self, nbytes: int, rtt_s: float, *, now: float) -> None:
        """``nbytes`` were acknowledged, ``rtt_s`` after the frame was handed to the transport."""
        ...


class FixedWindow:
    def __init__(self, window_bytes: int) -> None:
        self._window_bytes = window_bytes

    def window_bytes(self) -> int:
        return self._window_bytes

    def on_ack(self, nbytes: int, rtt_s: float, *, now: float) -> None:
        """A fixed window learns nothing."""


class StopAndWait:
    """One frame, then its acknowledgement. Nothing fits in no bytes, so each frame goes alone."""

    def window_bytes(self) -> int:
        return 0

    def on_ack(self, nbytes: int, rtt_s: float, *, now: float) -> None:
        """There is nothing to adapt."""


def window_for(limits: SendLimits) -> WindowController:
    if limits.window_bytes is None:
        return StopAndWait()
    return FixedWindow(limits.window_bytes)
