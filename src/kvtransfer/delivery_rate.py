"""How fast a pair delivers: the largest rate seen of late. No I/O; ``now`` is an argument.

A sample is taken with every acknowledgement: what arrived in the last ``span_s``, but not since
before the acknowledged frame left. It is *limited* when the sender, not the path, may have kept it
small: such a sample may raise the estimate, never lower it, and the time that it took makes no
other expire. Nor does silence: a path that was cut for a while has not become slower.
"""

from collections import deque
from dataclasses import dataclass

GROWTH = 1.25  # a sample that stands out by less is no growth
SILENCE = 0.5  # of the horizon without an arrival


@dataclass(frozen=True, slots=True)
class Mark:
    """The pair's count when a frame left: until ``delivered_s`` so many bytes had arrived."""

    sent_s: float
    delivered_s: float
    delivered_bytes: int
    is_limited: bool


class DeliveryRate:
    """``bytes_per_s`` is the estimate, ``latest_bytes_per_s`` the newest unlimited sample.

    ``is_settled``: for a whole horizon no sample has shown growth, so the line is probably full.
    """

    def __init__(self) -> None:
        self.latest_bytes_per_s: float | None = None
        self.is_settled = False
        self._samples: deque[tuple[float, float]] = deque()  # (clock, rate), rates descending
        self._clock_s = 0.0  # of unlimited time: what lets samples expire
        self._grown_s = 0.0
        self._grown_bytes_per_s = 0.0
        self._arrived_bytes = 0
        self._arrivals = deque([(0.0, 0)])  # (time, bytes so far); the first is a span ago
        self._paused_s: float | None = None

    @property
    def bytes_per_s(self) -> float | None:
        return self._samples[0][1] if self._samples else None

    def pause(self, now: float) -> None:
        """The sender holds back, or has nothing to send: until a frame that is sent later arrives,
        samples are limited."""
        self._paused_s = now

    def forget(self) -> None:
        """The line has changed: only the latest sample counts."""
        if self.latest_bytes_per_s is not None:
            self._samples = deque([(self._clock_s, self.latest_bytes_per_s)])

    def sent(self, *, is_first: bool, now: float) -> Mark:
        """A frame leaves; ``is_first``: nothing else is in flight."""
        if is_first:
            self._restart(now)
        last_s, last_bytes = self._arrivals[-1]
        return Mark(now, last_s, last_bytes, is_limited=self._paused_s is not None)

    def delivered(
        self,
        mark: Mark,
        nbytes: int,
        *,
        span_s: float,
        horizon_s: float,
        holds: bool = False,
        now: float,
    ) -> None:
        """Samples that are older than ``horizon_s`` no longer count, unless the estimate ``holds``
        them."""
        silence_s = now - self._arrivals[-1][0]
        self._arrived_bytes += nbytes
        if silence_s > SILENCE * horizon_s:
            self._restart(now)
        else:
            self._arrivals.append((now, self._arrived_bytes))
        if self._paused_s is not None and mark.sent_s > self._paused_s:
            self._paused_s = None
        rate = self._sample(mark, span_s, now)
        if rate is None:
            return
        if mark.is_limited:
            self._raise(rate)
            return
        self._clock_s += min(silence_s, SILENCE * horizon_s)
        self.latest_bytes_per_s = rate
        self._take(rate)
        if not holds:
            self._expire(horizon_s)

    def _restart(self, now: float) -> None:
        """What was before is no part of any sample."""
        self._arrivals = deque([(now, self._arrived_bytes)])

    def _sample(self, mark: Mark, span_s: float, now: float) -> float | None:
        """None while it would be over less than a span, and less than the frame's flight."""
        while len(self._arrivals) > 1 and self._arrivals[1][0] <= now - span_s:
            self._arrivals.popleft()
        start_s, start_bytes = max(self._arrivals[0], (mark.delivered_s, mark.delivered_bytes))
        is_whole = now - start_s >= span_s or start_s == mark.delivered_s
        if now <= start_s or not is_whole:
            return None
        return (self._arrived_bytes - start_bytes) / (now - start_s)

    def _raise(self, rate: float) -> None:
        if rate > (self.bytes_per_s or 0.0):
            self._take(rate)

    def _take(self, rate: float) -> None:
        while self._samples and self._samples[-1][1] <= rate:
            self._samples.pop()
        self._samples.append((self._clock_s, rate))
        if rate >= GROWTH * self._grown_bytes_per_s:
            self._grown_bytes_per_s = rate
            self._grown_s = self._clock_s

    def _expire(self, horizon_s: float) -> None:
        while self._samples[0][0] < self._clock_s - horizon_s:
            self._samples.popleft()
        if self._clock_s - self._grown_s >= horizon_s:
            self.is_settled = True
