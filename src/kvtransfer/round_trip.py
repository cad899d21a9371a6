"""The round trip of a path without what queues on it. No I/O; ``now`` is an argument.

It is measured by pings: small messages, one at a time. A ping never takes less than the path, so
the smallest of the last few is the estimate. It may take more because of our own bytes in a queue
before it, so a longer ping says nothing while we fill the path. Then there is *doubt*: the sender
narrows its flight to less than the path holds, until a ping that met no queue of ours decides.
"""

from collections import deque

NUM_PINGS = 5
LONGER = 1.25  # times the estimate: not to be explained by chance
UNEXPLAINED = 1.1  # times what our own queue can have added up to
OVERDUE_S = 10.0  # so long may our own queue explain that every ping is longer
PATIENCE = 8  # pings after which a doubt is decided with what there is


class RoundTrip:
    """``seconds`` is the estimate, None before the first ping."""

    def __init__(self) -> None:
        self.is_doubted = False
        self._pings: deque[float] = deque(maxlen=NUM_PINGS)
        self._longer: list[float] = []  # since the last ping that was not
        self._confirmed_s = 0.0

    @property
    def seconds(self) -> float | None:
        return min(self._pings, default=None)

    def on_ping(self, rtt_s: float, *, is_clear: bool, queue_s: float, now: float) -> None:
        """``is_clear``: we never filled the path while the ping was on its way. ``queue_s``: the
        longest that what we had in flight can have taken to arrive."""
        seconds = self.seconds
        if seconds is None or rtt_s <= LONGER * seconds:
            self._confirm([rtt_s], now)
            return
        self._longer.append(rtt_s)
        is_enough = is_clear or len(self._longer) > PATIENCE
        if self.is_doubted and is_enough:
            self._pings.clear()
            self._confirm([min(self._longer)], now)
        elif is_clear or rtt_s > UNEXPLAINED * queue_s or now - self._confirmed_s > OVERDUE_S:
            self.is_doubted = True

    def _confirm(self, pings: list[float], now: float) -> None:
        self._pings.extend(pings)
        self._longer.clear()
        self._confirmed_s = now
        self.is_doubted = False
