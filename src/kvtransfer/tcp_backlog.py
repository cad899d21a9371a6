"""Whether TCP had more to send than it could: then the path is the slowest of all, and no program.

Looked at a few times a second. What waits in a socket was written by a sender that is ahead; unless
the receiver's window was full, what it waits for is the path. No I/O; ``now`` is an argument.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from kvtransfer.tcp_period import LIMITED
from kvtransfer.tcp_sample import TcpSample

KEPT_LOOKS = 1000


@dataclass(frozen=True, slots=True)
class Look:
    """``waiting_bytes``: in sockets whose receiver had room for them, all connections together."""

    at_s: float
    waiting_bytes: int


class TcpBacklog:
    def __init__(self) -> None:
        self._looks: deque[Look] = deque(maxlen=KEPT_LOOKS)
        self._before: tuple[float, Sequence[TcpSample]] = (0.0, ())

    def on_tcp(self, samples: Sequence[TcpSample], *, now: float) -> None:
        """``samples`` of the same connections as before, in their order, or none between others."""
        (before_s, before), self._before = self._before, (now, samples)
        if not samples or len(before) != len(samples):
            return  # whether a receiver's window was full, only two looks can tell
        waiting = [
            sample.notsent_bytes
            for sample, old in zip(samples, before, strict=True)
            if sample.rwnd_limited_s - old.rwnd_limited_s <= LIMITED * (now - before_s)
        ]
        self._looks.append(Look(now, sum(waiting)))

    def share_since(self, start_s: float, least_bytes: float) -> float | None:
        """Of the looks since then, those that found at least so much; None before two."""
        waiting = [look.waiting_bytes for look in self._looks if look.at_s > start_s]
        if len(waiting) < 2:
            return None
        return sum(nbytes >= least_bytes for nbytes in waiting) / len(waiting)
