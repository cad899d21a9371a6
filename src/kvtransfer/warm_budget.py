"""How many warm-up bytes a receiver takes: a bound for each connection, and one over all.

Buckets that fill up again in ``REFILL_S``: a connection's holds ``bytes_of_one``, the one of all
connections four times as much. Invariant: within any ``REFILL_S`` no connection is granted more
than twice its bucket. Only connections that asked lately are remembered. No I/O, no clock.
"""

REFILL_S = 10.0
NUM_FULL_SPEED = 4  # connections that may use up their whole share at the same time


class WarmBudget:
    def __init__(self, bytes_of_one: int) -> None:
        self._bytes_of_one = bytes_of_one
        self._of_all = _Bucket(NUM_FULL_SPEED * bytes_of_one)
        self._of_one: dict[str, _Bucket] = {}

    @property
    def num_remembered(self) -> int:
        return len(self._of_one)

    def take(self, connection: str, nbytes: int, *, now: float) -> bool:
        """Whether ``nbytes`` more fit; if so they are taken from both buckets."""
        bucket = self._of_one.get(connection)
        if bucket is None:
            self._forget_idle(now)
            bucket = self._of_one[connection] = _Bucket(self._bytes_of_one)
        if nbytes > min(bucket.room(now), self._of_all.room(now)):
            return False
        bucket.take(nbytes)
        self._of_all.take(nbytes)
        return True

    def _forget_idle(self, now: float) -> None:
        """A full bucket says no more than a new one."""
        full = [name for name, bucket in self._of_one.items() if bucket.is_full(now)]
        for name in full:
            del self._of_one[name]


class _Bucket:
    """Starts full."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._taken_bytes = 0.0
        self._at_s: float | None = None

    def room(self, now: float) -> float:
        if self._at_s is not None:
            refilled = self._size_bytes * (now - self._at_s) / REFILL_S
            self._taken_bytes = max(0.0, self._taken_bytes - refilled)
        self._at_s = now
        return self._size_bytes - self._taken_bytes

    def is_full(self, now: float) -> bool:
        return self.room(now) >= self._size_bytes

    def take(self, nbytes: int) -> None:
        """Call ``room`` before."""
        self._taken_bytes += nbytes
