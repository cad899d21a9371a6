"""The round trip of a path without what queues on it. No I/O; ``now`` is an argument.

It is measured by pings: small messages, one at a time. A ping never takes less than the path, so
the smallest of the last few is the estimate. It may take more because our own bytes queue before
it; then a longer ping does not mean a longer path. So when it is too long to be explained, there is
*doubt*: the sender narrows its flight until a ping that met little of it decides.
"""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

NUM_PINGS = 5
LONGER = 1.25  # times the estimate: not to be explained by chance
LONGER_S = 0.01  # nor by two programs that were busy
OVERDUE_S = 10.0  # for so long our own queue may explain that every ping is longer
PATIENCE = 8  # pings, after which a doubt is decided by the next one


@dataclass(frozen=True, slots=True)
class Ping:
    """``queue_s``: how long all that was in flight meanwhile takes to arrive; ``is_narrow``: that
    was little. ``is_slower``: less arrives than before, as if the window had become too small.
    """

    rtt_s: float
    queue_s: float = 0.0
    is_narrow: bool = True
    is_slower: bool = False


class Finding(StrEnum):
    NOTHING = "nothing"
    CONFIRMED = "confirmed"  # this ping says what the round trip is
    AS_BEFORE = "as before"  # a doubt has ended: the path is no longer
    LONGER = "longer"  # a doubt has ended: it is


class RoundTrip:
    """``seconds`` is the estimate, None before the first ping."""

    def __init__(self) -> None:
        self.is_doubted = False
        self.least_s: float | None = None  # since the path was last found longer
        self._pings: deque[float] = deque(maxlen=NUM_PINGS)
        self._known_s = 0.0  # when a ping last told something
        self._num_doubtful = 0  # pings since the doubt began

    @property
    def seconds(self) -> float | None:
        return min(self._pings, default=None)

    def on_ping(self, ping: Ping, now: float) -> Finding:
        finding = self._find(ping, now)
        least_s = self.least_s if finding is not Finding.LONGER else None
        self.least_s = ping.rtt_s if least_s is None else min(least_s, ping.rtt_s)
        if finding is not Finding.NOTHING:
            self.is_doubted = False
            self._known_s = now
        return finding

    def _find(self, ping: Ping, now: float) -> Finding:
        seconds = self.seconds
        self._num_doubtful += 1
        if seconds is None or self._is_near(ping, seconds):
            self._pings.append(ping.rtt_s)
            return Finding.AS_BEFORE if self.is_doubted else Finding.CONFIRMED
        longer_s = max(LONGER * seconds, seconds + LONGER_S)
        is_longer = ping.rtt_s - ping.queue_s > longer_s
        if self.is_doubted and (ping.is_narrow or self._num_doubtful > PATIENCE):
            return self._accept(ping.rtt_s) if is_longer else Finding.AS_BEFORE
        is_strange = is_longer or ping.is_slower or now - self._known_s > OVERDUE_S
        if ping.rtt_s > longer_s and is_strange and not self.is_doubted:
            self.is_doubted = True
            self._num_doubtful = 0
        return Finding.NOTHING

    def _accept(self, rtt_s: float) -> Finding:
        self._pings = deque([rtt_s], maxlen=NUM_PINGS)
        return Finding.LONGER

    def _is_near(self, ping: Ping, seconds: float) -> bool:
        """Whether it may be taken as it is: little longer, with no queue of ours at least."""
        is_clear = ping.queue_s <= (LONGER - 1) * seconds
        return ping.rtt_s <= LONGER * seconds or (is_clear and ping.rtt_s <= seconds + LONGER_S)
