"""How fast a pair delivers: the largest rate seen of late. No I/O; ``now`` is an argument.

A sample is taken per frame, in the way of BBR: what was acknowledged between the frame's sending
and its own acknowledgement, over the longer of the time that this took and the time in which it
was sent. So neither a burst of acknowledgements nor a burst of frames looks like a fast line.
A sample is *limited* when the sender, not the path, may have kept it small: such a sample may
raise the estimate, never lower it, and the time that it took makes no older sample expire.
"""

from collections import deque
from dataclasses import dataclass

# A sample that stands out by less than this is no growth.
GROWTH = 1.25


@dataclass(frozen=True, slots=True)
class Mark:
    """The pair's count when a frame left. ``first_sent_s``: when the frame that had been
    acknowledged last was sent."""

    sent_s: float
    first_sent_s: float
    delivered_s: float
    delivered_bytes: int
    is_limited: bool


class DeliveryRate:
    """``bytes_per_s`` is the estimate, ``latest_bytes_per_s`` the newest unlimited sample.

    ``is_settled``: for ``horizon_s`` no sample has shown growth, so the line is probably full.
    """

    def __init__(self) -> None:
        self.latest_bytes_per_s: float | None = None
        self.is_settled = False
        self._samples: deque[tuple[float, float]] = deque()  # (clock, rate), rates descending
        self._clock_s = 0.0  # of unlimited time: what lets samples expire
        self._grown_s = 0.0
        self._grown_bytes_per_s = 0.0
        self._delivered_bytes = 0
        self._delivered_s = 0.0
        self._first_sent_s = 0.0
        self._paused_s: float | None = None

    @property
    def bytes_per_s(self) -> float | None:
        return self._samples[0][1] if self._samples else None

    def pause(self, now: float) -> None:
        """The sender holds back, or has nothing to send: until a frame that is sent later arrives,
        samples are limited."""
        self._paused_s = now

    def sent(self, *, is_first: bool, now: float) -> Mark:
        """A frame leaves; ``is_first``: nothing else is in flight."""
        if is_first:
            self._first_sent_s = self._delivered_s = now
        return Mark(
            sent_s=now,
            first_sent_s=self._first_sent_s,
            delivered_s=self._delivered_s,
            delivered_bytes=self._delivered_bytes,
            is_limited=self._paused_s is not None,
        )

    def delivered(self, mark: Mark, nbytes: int, *, horizon_s: float, now: float) -> None:
        """Samples that are older than ``horizon_s`` no longer count."""
        gap_s = now - self._delivered_s
        self._delivered_bytes += nbytes
        self._delivered_s = now
        self._first_sent_s = mark.sent_s
        if self._paused_s is not None and mark.sent_s > self._paused_s:
            self._paused_s = None
        elapsed_s = max(now - mark.delivered_s, mark.sent_s - mark.first_sent_s)
        if elapsed_s <= 0:
            return
        rate = (self._delivered_bytes - mark.delivered_bytes) / elapsed_s
        if not mark.is_limited:
            # A path that was cut for a while has not become slower.
            self._clock_s += min(gap_s, horizon_s / 2)
            self.latest_bytes_per_s = rate
        elif rate <= (self.bytes_per_s or 0.0):
            return
        self._take(rate)
        if not mark.is_limited:
            self._expire(horizon_s)

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
