"""How a path is warmed: how many bytes may be in flight now, and when it is warm. No I/O, no clock.

The way of BBR's start-up: a round lasts until something that was sent after its beginning is
acknowledged, so never less than a round trip. The window is ``GAIN`` times what the best round
would deliver in one round trip, so it doubles while the rate does; warm means that three rounds in
a row brought less than ``GROWTH`` times the best rate before them. Never sends more than
``max_bytes``.
"""

MIN_MESSAGE_BYTES = 16 * 2**10
FIRST_WINDOW_BYTES = 64 * 2**10
GAIN = 2.0
GROWTH = 1.25
FLAT_ROUNDS = 3


class WarmRounds:
    """``rtt_s``: a small round trip of the path, measured before."""

    def __init__(self, rtt_s: float, max_bytes: int, *, now: float) -> None:
        self.sent_bytes = 0
        self.acked_bytes = 0
        self.rate_bytes_per_s = 0.0  # of the best round
        self._rtt_s = rtt_s
        self._max_bytes = max_bytes
        self._num_flat = 0
        self._round_start_s = now
        self._round_start_bytes = 0  # acknowledged when the round began
        self._round_end_bytes = 0  # sent when it began; an acknowledgement beyond them ends it

    @property
    def in_flight_bytes(self) -> int:
        return self.sent_bytes - self.acked_bytes

    @property
    def window_bytes(self) -> int:
        return max(FIRST_WINDOW_BYTES, int(GAIN * self.rate_bytes_per_s * self._rtt_s))

    @property
    def is_warm(self) -> bool:
        return self._num_flat >= FLAT_ROUNDS

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

    def sent(self, nbytes: int) -> None:
        self.sent_bytes += nbytes

    def acked(self, nbytes: int, *, now: float) -> None:
        self.acked_bytes += nbytes
        if self.acked_bytes > self._round_end_bytes:
            self._end_round(now)

    @property
    def _left_bytes(self) -> int:
        return self._max_bytes - self.sent_bytes

    def _end_round(self, now: float) -> None:
        duration_s = max(now - self._round_start_s, 1e-6)
        rate = (self.acked_bytes - self._round_start_bytes) / duration_s
        self._num_flat = 0 if rate >= GROWTH * self.rate_bytes_per_s else self._num_flat + 1
        self.rate_bytes_per_s = max(rate, self.rate_bytes_per_s)
        self._round_start_s = now
        self._round_start_bytes = self.acked_bytes
        self._round_end_bytes = self.sent_bytes
