"""Whether a pair's connections have gone cold, and how many bytes a warm-up is worth.

A connection that carried nothing for a while may start slowly again: cubic forgets its rate within
a second. On a short path a slow start takes no time worth the bytes. No I/O, no clock.
"""

COLD_AFTER_S = 1.0
LEAST_RTT_S = 0.002  # below it even a cold connection is up to its rate within 20 ms
LEAST_REOPEN_S = 10.0
LEAST_TRANSFER_BYTES = 256 * 2**10  # a smaller transfer is gone before its connection is warm


class Warmth:
    """``max_bytes``: the most that one warm-up may send."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._moved_s: float | None = None
        self._reopened_s = -LEAST_REOPEN_S

    def moved(self, now: float) -> None:
        """Bytes left on these connections."""
        self._moved_s = now

    def reopened(self, now: float) -> None:
        """They are others now, and know nothing yet. A link that breaks again and again is not
        warmed up each time."""
        if now - self._reopened_s >= LEAST_REOPEN_S:
            self._moved_s = None
            self._reopened_s = now

    def budget_bytes(self, rtt_s: float | None, expected_bytes: int | None, *, now: float) -> int:
        """How many bytes to warm up with at most; 0: it is not worth any.

        ``expected_bytes``: of the transfer that comes; None: nobody knows, and only connections
        that are new are worth it. A warm-up that is larger than its transfer would cost the link
        more than it saves.
        """
        is_cold = self._moved_s is None or now - self._moved_s > COLD_AFTER_S
        if rtt_s is None or rtt_s < LEAST_RTT_S or not is_cold:
            return 0
        if expected_bytes is None:
            return self._max_bytes if self._moved_s is None else 0
        return min(self._max_bytes, expected_bytes) if expected_bytes >= LEAST_TRANSFER_BYTES else 0
