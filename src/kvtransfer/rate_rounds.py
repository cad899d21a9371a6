"""How a path's rate is measured: like ``WarmRounds``, but until it is steady, and averaged.

A warm-up may end on a guess; a measurement may not. So rounds have a fixed length of several round
trips, in which a burst of acknowledgements counts little, and the window is never small. Steady
means that ``STEADY_ROUNDS`` rounds in a row brought no more than the best before them. No I/O.
"""

from collections import deque
from itertools import pairwise
from statistics import mean

from kvtransfer.warm_rounds import MIN_MESSAGE_BYTES

FIRST_WINDOW_BYTES = 2**20
GAIN = 2.5
GROWTH = 1.1
STEADY_ROUNDS = 3
ROUND_TRIPS = 2
LEAST_ROUND_S = 0.1


class RateRounds:
    """``rtt_s``: a small round trip of the path, measured before."""

    def __init__(self, rtt_s: float, max_bytes: int, *, now: float) -> None:
        self.sent_bytes = 0
        self.acked_bytes = 0
        self._rtt_s = rtt_s
        self._max_bytes = max_bytes
        self._round_s = max(LEAST_ROUND_S, ROUND_TRIPS * rtt_s)
        self._lately: deque[float] = deque(maxlen=STEADY_ROUNDS)  # rates of the last rounds
        self._best = 0.0
        self._num_flat = 0
        self._start_s = now
        self._start_bytes = 0
        self._acked_s = now

    @property
    def rate_bytes_per_s(self) -> float:
        """The mean of the steady rounds; before there are, the best two of the last in a row, or
        of all that was acknowledged."""
        if not self._lately:
            return self.acked_bytes / max(self._acked_s - self._start_s, 1e-6)
        if self.is_warm or len(self._lately) == 1:
            return mean(self._lately)
        return max(mean(pair) for pair in pairwise(self._lately))

    @property
    def in_flight_bytes(self) -> int:
        return self.sent_bytes - self.acked_bytes

    @property
    def window_bytes(self) -> int:
        return max(FIRST_WINDOW_BYTES, int(GAIN * self._best * self._rtt_s))

    @property
    def is_warm(self) -> bool:
        """Whether the rate no longer grows."""
        return self._num_flat >= STEADY_ROUNDS

    @property
    def is_over(self) -> bool:
        return self.is_warm or self._left_bytes < MIN_MESSAGE_BYTES

    def room_bytes(self) -> int:
        if self.is_over:
            return 0
        return max(0, min(self.window_bytes - self.in_flight_bytes, self._left_bytes))

    def sent(self, nbytes: int, *, now: float) -> None:
        self.sent_bytes += nbytes

    def acked(self, nbytes: int, *, now: float) -> None:
        self.acked_bytes += nbytes
        self._acked_s = now
        if now - self._start_s >= self._round_s and not self.is_over:
            self._end_round(now)

    @property
    def _left_bytes(self) -> int:
        return self._max_bytes - self.sent_bytes

    def _end_round(self, now: float) -> None:
        rate = (self.acked_bytes - self._start_bytes) / (now - self._start_s)
        self._num_flat = 0 if rate > GROWTH * self._best else self._num_flat + 1
        self._best = max(self._best, rate)
        self._lately.append(rate)
        self._start_s, self._start_bytes = now, self.acked_bytes
