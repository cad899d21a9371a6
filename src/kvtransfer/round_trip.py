"""The round trip of a path without what queues on it. No I/O; ``now`` is an argument.

It is measured by pings: small messages, one at a time. A ping never takes less than the path, so
the smallest of the last few is the estimate. It may take more because our own bytes queue before
it; then a longer ping does not mean a longer path. So when it is too long to be explained, there is
*doubt*: the sender narrows its flight until a ping that met little of it decides.
"""

from collections import deque
from dataclasses import dataclass

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


class RoundTrip:
    """``seconds`` is the estimate, None before the first ping."""

    def __init__(self) -> None:
        self.is_doubted = False
        self.confirmed_s = 0.0  # when a ping last said what the round trip is
        self._pings: deque[float] = deque(maxlen=NUM_PINGS)
        self._num_doubtful = 0  # pings since the doubt began

    @property
    def seconds(self) -> float | None:
        return min(self._pings, default=None)

    def on_ping(self, ping: Ping, now: float) -> bool:
        """Says whether a doubt has ended, with the path as long as before."""
        was_doubted, seconds = self.is_doubted, self.seconds
        self._num_doubtful += 1
        if seconds is None or self._is_near(ping, seconds):
            self._pings.append(ping.rtt_s)
            self._confirm(now)
            return was_doubted
        longer_s = max(LONGER * seconds, seconds + LONGER_S)
        is_longer = ping.rtt_s - ping.queue_s > longer_s
        if was_doubted and (ping.is_narrow or self._num_doubtful > PATIENCE):
            if is_longer:
                self._pings = deque([ping.rtt_s], maxlen=NUM_PINGS)
            self._confirm(now)
            return not is_longer
        is_overdue = now - self.confirmed_s > OVERDUE_S
        is_strange = is_longer or ping.is_slower or is_overdue
        if ping.rtt_s > longer_s and is_strange and not was_doubted:
            self.is_doubted = True
            self._num_doubtful = 0
        return False

    def _is_near(self, ping: Ping, seconds: float) -> bool:
        """Whether it may be taken as it is: little longer, with no queue of ours at least."""
        is_clear = ping.queue_s <= (LONGER - 1) * seconds
        return ping.rtt_s <= LONGER * seconds or (is_clear and ping.rtt_s <= seconds + LONGER_S)

    def _confirm(self, now: float) -> None:
        self.is_doubted = False
        self.confirmed_s = now
