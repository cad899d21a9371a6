"""When the last pages of a prompt may be ready, told by those before. No I/O, no clock.

A prompt that is computed slowly lets its connections rest between chunks, long enough for TCP to
begin slowly again; what that costs shows only after the last chunk, when nothing hides it.
"""

SOONEST = 0.5  # of the time that it would take at the last pace: the end of a prompt may be cut


class LastPages:
    def __init__(self, num_pages: int) -> None:
        self._num_pages = num_pages
        self._num_ready = 0
        self._ready_s: float | None = None

    def ready(self, num_pages: int, now: float) -> tuple[int, float] | None:
        """Pages [0, num_pages) are final. How many are left and when some of them may be, at the
        soonest; None while more than one chunk is left, or nothing, or the pace is not known."""
        num_new, left = num_pages - self._num_ready, self._num_pages - num_pages
        if num_new <= 0:
            return None
        before_s, self._ready_s, self._num_ready = self._ready_s, now, num_pages
        if before_s is None or not 0 < left <= num_new:
            return None
        return left, now + SOONEST * (now - before_s) * left / num_new
