"""How fast a pair delivers: the largest rate seen of late. No I/O; ``now`` is an argument.

A sample is taken with every acknowledgement: what arrived in the last ``span_s``, or since the
first frame left; so a burst of acknowledgements is no fast line. It is *limited* when the sender,
not the path, may have kept it small, since there was a pause in what it covers: such a sample may
raise the estimate, never lower it, and the time that it took makes no other expire. Nor does
silence: a path that was cut for a while has not become slower. But one on which pings come back
meanwhile was not cut, it has: what was lost on it holds up what came after.
"""

import math
from collections import deque
from dataclasses import dataclass

GROWTH = 1.25  # a sample that stands out by less is no growth
SILENCE = 0.5  # of the horizon without an arrival
ANSWERED = 0.7  # of such a silence: a ping that took no longer was not held up by a cut


@dataclass(frozen=True, slots=True)
class Mark:
    """When a frame left, and how often the sender had paused before."""

    sent_s: float
    num_pauses: int


class DeliveryRate:
    """``bytes_per_s`` is the estimate, ``latest_bytes_per_s`` the newest unlimited sample.

    ``is_settled``: for a whole horizon no sample has shown growth, so the line is probably full.
    """

    def __init__(self) -> None:
        self.latest_bytes_per_s: float | None = None
        self.is_settled = False
        self._samples: deque[tuple[float, float]] = deque()  # (clock, rate), rates descending
        self._clock_s = 0.0  # of unlimited time: what lets samples expire
        self._held_since_s: float | None = None  # by that clock
        self._grown_s = 0.0
        self._grown_bytes_per_s = 0.0
        self._arrived_bytes = 0
        self._arrivals = deque([(0.0, 0)])  # (time, bytes so far); the first is a span ago
        self._was_silent = False  # before these
        # Till then a sample includes the last silence of a slow line, as well as what ended it.
        self._covered_until_s = -math.inf
        self._least_ping_s = math.inf  # of those that came back since the last arrival
        self._num_pauses = 0
        self._num_pauses_arrived = 0
        self._flowing_s = 0.0  # when the first frame after the last of these arrived

    @property
    def bytes_per_s(self) -> float | None:
        return self._samples[0][1] if self._samples else None

    def pause(self) -> None:
        """The sender holds back, or has nothing to send."""
        self._num_pauses += 1

    def answered(self, rtt_s: float) -> None:
        """A ping came back."""
        self._least_ping_s = min(self._least_ping_s, rtt_s)

    def hold(self) -> None:
        """From now on nothing expires."""
        self._held_since_s = self._clock_s

    def release(self, *, forgets: bool) -> None:
        """Samples expire again; ``forgets``: at once those from before ``hold``, but the latest."""
        assert self._held_since_s is not None, "nothing is held"
        while forgets and len(self._samples) > 1 and self._samples[0][0] < self._held_since_s:
            self._samples.popleft()
        self._held_since_s = None

    def sent(self, *, is_first: bool, now: float) -> Mark:
        """A frame leaves; ``is_first``: nothing else is in flight."""
        if is_first:
            self._restart(now, was_silent=False)
        return Mark(now, self._num_pauses)

    def delivered(
        self, mark: Mark, nbytes: int, *, span_s: float, horizon_s: float, now: float
    ) -> None:
        """Samples that are older than ``horizon_s`` no longer count."""
        silence_s = self._arrive(mark, nbytes, horizon_s, now)
        start_s, start_bytes = self._start(span_s, now)
        if start_s == now:
            return
        rate = (self._arrived_bytes - start_bytes) / (now - start_s)
        if start_s < self._flowing_s:
            self._raise(rate)
            return
        self._clock_s += silence_s
        self.latest_bytes_per_s = rate
        self._take(rate)
        if self._held_since_s is None:
            self._expire(horizon_s)

    def _arrive(self, mark: Mark, nbytes: int, horizon_s: float, now: float) -> float:
        """Says how long nothing had arrived."""
        silence_s = now - self._arrivals[-1][0]
        self._arrived_bytes += nbytes
        if silence_s > SILENCE * horizon_s:
            self._end_silence(silence_s, now)
        else:
            self._arrivals.append((now, self._arrived_bytes))
        self._least_ping_s = math.inf
        if mark.num_pauses > self._num_pauses_arrived:
            self._num_pauses_arrived = mark.num_pauses
            self._flowing_s = now
        return silence_s

    def _end_silence(self, silence_s: float, now: float) -> None:
        is_slow_already = now - silence_s < self._covered_until_s
        if self._least_ping_s > ANSWERED * silence_s and not is_slow_already:
            self._restart(now, was_silent=True)
            return
        if not is_slow_already:
            self._arrivals = deque([self._arrivals[-1]])
        self._arrivals.append((now, self._arrived_bytes))
        self._covered_until_s = now + silence_s

    def _restart(self, now: float, *, was_silent: bool) -> None:
        """What was before is no part of any sample."""
        self._arrivals = deque([(now, self._arrived_bytes)])
        self._was_silent = was_silent

    def _start(self, span_s: float, now: float) -> tuple[float, int]:
        """Where a sample begins; ``now`` while a burst that ended a silence would be most of it."""
        first_s = -math.inf if now < self._covered_until_s else now - span_s
        while len(self._arrivals) > 1 and self._arrivals[1][0] <= first_s:
            self._arrivals.popleft()
        start = self._arrivals[0]
        is_short = now - start[0] < span_s and self._was_silent
        return (now, 0) if is_short else start

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
