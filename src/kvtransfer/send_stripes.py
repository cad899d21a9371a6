"""All stripes of one transfer: how many are to have a stream, and which of them may take a frame.

How many may change until the commit, where the mode is adaptive. Frames go to whichever stripe asks
first; but while there are several, none may hold much more than its share of the window, so that
one whose connection has stalled does not keep what the others could carry.
"""

from kvtransfer.limits import SendLimits
from kvtransfer.send_stripe import SendStripe
from kvtransfer.stripe_policy import StripePolicy

MOST_SHARES = 1.5  # of the window that a stripe may hold
LEAST_FRAMES = 2  # that it may hold, whatever its share


class SendStripes:
    def __init__(self, limits: SendLimits, max_stripes: int, policy: StripePolicy) -> None:
        self.num_attempts = 1
        self._is_adaptive = limits.is_adaptive
        self._policy = policy
        self._stripes = [SendStripe() for _ in range(max_stripes)]

    def __getitem__(self, stripe: int) -> SendStripe:
        return self._stripes[stripe]

    @property
    def max_num(self) -> int:
        return len(self._stripes)

    @property
    def num(self) -> int:
        if not self._is_adaptive:
            return self.max_num
        return min(self._policy.num_stripes(), self.max_num)

    @property
    def num_opened(self) -> int:
        """Stripes that have had a stream, open now or not."""
        return sum(stripe.was_opened for stripe in self._stripes)

    @property
    def is_open(self) -> bool:
        return any(stripe.is_open for stripe in self._stripes)

    @property
    def is_cut(self) -> bool:
        """A stream was opened, and none that is open has been answered."""
        was_opened = any(stripe.was_opened for stripe in self._stripes)
        return was_opened and not any(stripe.is_heard for stripe in self._stripes)

    @property
    def has_handoff(self) -> bool:
        return any(stripe.has_handoff for stripe in self._stripes)

    def open(self, stripe: int) -> int:
        """A stream of ``stripe`` is about to open; the attempt that it carries."""
        lane = self._stripes[stripe]
        if lane.was_opened:
            self.num_attempts += 1
        lane.open(attempt=self.num_attempts - 1 if lane.was_opened else 0)
        return lane.attempt

    def may_take(self, stripe: int, nbytes: int, window_bytes: int) -> bool:
        """Whether the next frame may go to ``stripe``, which has an open stream."""
        if not self._is_adaptive:
            return True
        wanted = [lane for lane in self._stripes[: self.num] if lane.is_open]
        lane = self._stripes[stripe]
        if lane not in wanted:
            is_better = lane.is_heard and not any(other.is_heard for other in wanted)
            return is_better or not wanted
        most_bytes = max(MOST_SHARES * window_bytes / len(wanted), LEAST_FRAMES * nbytes)
        return lane.in_flight_bytes + nbytes <= most_bytes or len(wanted) == 1

    def close(self) -> tuple[int, int]:
        """All streams are gone; how many bytes and frames were not acknowledged."""
        frames = [frame for stripe in self._stripes for frame in stripe.close()]
        return sum(frame.nbytes for frame in frames), len(frames)
