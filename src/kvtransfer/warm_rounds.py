"""How a path is warmed: how many bytes may be in flight now, and when it is warm. No I/O, no clock.

The way of BBR's start-up: each message shows a rate, what was acknowledged from its sending to its
own acknowledgement; the window is a gain times what the best rate delivers in one round trip, so it
doubles each round trip while the rate does. A round lasts until something that was sent after its
beginning is acknowledged; warm means that in three rounds in a row the best rate grew by less than
``GROWTH``. Never sends more than ``max_bytes``.

A path whose rate is known is asked for that rate and no more: a flight that is larger only fills
the queue before the line, and what it drops there makes bbr forget the rate that was to be kept.
"""

import math
from collections import deque

MIN_MESSAGE_BYTES = 16 * 2**10
FIRST_WINDOW_BYTES = 256 * 2**10
START_GAIN = 2.5  # while the rate grows
GAIN = 2.0
GROWTH = 1.25
FLAT_ROUNDS = 3
KNOWN_GAIN = 1.25  # a round trip under load is somewhat longer than the smallest one
NEAR = 0.85  # of the known rate: the connection is up to it


class WarmRounds:
    """``rtt_s``: a small round trip of the path, measured before. ``known_bytes_per_s``: the rate
    that its transfers had of late; None: there were none."""

    def __init__(
        self, rtt_s: float, max_bytes: int, *, known_bytes_per_s: float | None = None, now: float
    ) -> None:
        self.sent_bytes = 0
        self.acked_bytes = 0
        self.rate_bytes_per_s = 0.0  # the best
        self._rtt_s = rtt_s
        self._max_bytes = max_bytes
        self._known_rate = math.inf if known_bytes_per_s is None else known_bytes_per_s
        # Of each message in flight: bytes sent with it, and when it left: bytes acknowledged, time.
        self._marks: deque[tuple[int, int, float]] = deque()
        self._num_flat = 0
        self._round_end_bytes = 0  # sent when it began; an acknowledgement beyond them ends it
        self._grown_rate = 0.0  # the last one that counted as growth

    @property
    def in_flight_bytes(self) -> int:
        return self.sent_bytes - self.acked_bytes

    @property
    def window_bytes(self) -> int:
        gain = GAIN if self._num_flat else START_GAIN
        rate = min(gain * self.rate_bytes_per_s, KNOWN_GAIN * self._known_rate)
        return max(FIRST_WINDOW_BYTES, int(rate * self._rtt_s))

    @property
    def is_warm(self) -> bool:
        return self._num_flat >= FLAT_ROUNDS or self.rate_bytes_per_s >= NEAR * self._known_rate

    @property
    def is_over(self) -> bool:
        """Nothing more is to be sent."""
        return self.is_warm or self._left_bytes < MIN_MESSAGE_BYTES

    def room_bytes(self) -> int:
        """How much may be sent now."""
        if self.is_over:
            return 0
        room = self.window_bytes - self.in_flight_bytes
        return max(0, min(room, self._left_bytes))

    def sent(self, nbytes: int, *, now: float) -> None:
        self.sent_bytes += nbytes
        self._marks.append((self.sent_bytes, self.acked_bytes, now))

    def acked(self, nbytes: int, *, now: float) -> None:
        self.acked_bytes += nbytes
        while self._marks and self._marks[0][0] <= self.acked_bytes:
            _, acked_before, sent_s = self._marks.popleft()
            rate = (self.acked_bytes - acked_before) / max(now - sent_s, self._rtt_s)
            self.rate_bytes_per_s = max(self.rate_bytes_per_s, rate)
        if self.acked_bytes > self._round_end_bytes:
            self._end_round()

    @property
    def _left_bytes(self) -> int:
        return self._max_bytes - self.sent_bytes

    def _end_round(self) -> None:
        self._round_end_bytes = self.sent_bytes
        if self.rate_bytes_per_s >= GROWTH * self._grown_rate:
            self._grown_rate = self.rate_bytes_per_s
            self._num_flat = 0
        else:
            self._num_flat += 1
