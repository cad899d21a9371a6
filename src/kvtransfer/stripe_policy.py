"""How many connections of a pair ``auto`` uses now. A policy: no I/O, no clock, no connections.

Few are enough unless something holds each of them back. The kernel's send buffer is known: as many
as let buffers hold what the path holds. The receiver's window, and losses under a congestion
control that takes every loss for congestion, are not: when the kernel tells of them, twice as many
are tried, and kept if together they bring more, since each one beyond what is needed costs its own
start-up. A trial that brings nothing is repeated, but each time after a longer wait.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from kvtransfer.limits import MAX_AUTO_STRIPES
from kvtransfer.path import PathEstimator
from kvtransfer.tcp_period import TcpPeriod
from kvtransfer.tcp_sample import TcpSample

START_STRIPES = 1
USABLE = 0.7  # of a send buffer's bytes, those that are page bytes on their way
NEARLY_FULL = 0.6  # of the buffers: then they may be what holds back
# A period is judged when it was long enough, and most of it busy. New connections warm up in the
# first one of a trial.
PERIOD_ROUND_TRIPS, LEAST_PERIOD_S = 10, 0.5
BUSY = 0.8
PERIODS_OF_TRIAL = 2
DISTANT_S = 0.002  # a shorter round trip fits in any buffer: there the programs are too slow
GAIN = 1.1
FIRST_WAIT_S, LAST_WAIT_S = 5.0, 300.0
# So many of the last periods had losses: not those of a connection that starts, in its own queue.
LOSSY_PERIODS, LAST_PERIODS = 3, 10
CALM_PERIODS = 20  # in which nothing was held back: half of what trials have added may go


@dataclass(slots=True)
class _Trial:
    added_before: int
    rate_before: float
    num_periods: int = 0


class StripePolicy:
    """``send_buffer_bytes``: the most that the kernel gives one connection; None: unknown.
    ``backs_off_on_loss``: its congestion control takes every loss for congestion.
    """

    def __init__(
        self,
        path: PathEstimator,
        *,
        send_buffer_bytes: int | None = None,
        backs_off_on_loss: bool = True,
        max_stripes: int = MAX_AUTO_STRIPES,
    ) -> None:
        self.max_stripes = max_stripes
        self._path = path
        self._send_buffer_bytes = send_buffer_bytes
        self._backs_off_on_loss = backs_off_on_loss
        self._added = 0  # by trials
        self._trial: _Trial | None = None
        self._wait_s = FIRST_WAIT_S
        self._next_trial_s = -math.inf
        self._num_calm = 0  # periods in a row
        self._losses: deque[bool] = deque(maxlen=LAST_PERIODS)
        self._samples: Sequence[TcpSample] = ()
        self._since_s = 0.0

    @property
    def is_lossy(self) -> bool:
        """Whether the path loses packets, and not for want of room in its queue."""
        return sum(self._losses) >= LOSSY_PERIODS

    def num_stripes(self) -> int:
        return min(max(START_STRIPES, self._for_buffers()) + self._added, self.max_stripes)

    def on_tcp(self, samples: Sequence[TcpSample], *, now: float) -> None:
        """One sample of each connection, always in the same order; new ones come last.

        Call about once a round trip while something is sent.
        """
        period_s = max(LEAST_PERIOD_S, PERIOD_ROUND_TRIPS * (self._path.rtt_s or 0.0))
        is_comparable = len(samples) == len(self._samples) > 0
        if is_comparable and now - self._since_s < period_s:
            return
        if is_comparable:
            period = TcpPeriod.between(self._samples, samples, now - self._since_s)
            if period.busy_share >= BUSY:
                self._judge(period, now)
        self._samples, self._since_s = tuple(samples), now

    def _for_buffers(self) -> int:
        held_bytes = self._path.held_bytes
        if held_bytes is None or self._send_buffer_bytes is None:
            return 1
        return stripes_for_buffers(held_bytes, self._send_buffer_bytes)

    def _judge(self, period: TcpPeriod, now: float) -> None:
        self._losses.append(period.is_lossy and not period.has_queue)
        if self._trial is not None:
            self._go_on(self._trial, period, now)
        elif self._is_held_back(period):
            self._num_calm = 0
            if now >= self._next_trial_s:
                self._try_more(period)
        else:
            self._rest()

    def _is_held_back(self, period: TcpPeriod) -> bool:
        """Losses of a full line are those of its queue. A send buffer whose size is known is no
        question of trials."""
        if (self._path.rtt_s or 0.0) < DISTANT_S:
            return False
        if period.is_lossy and self._backs_off_on_loss and not period.has_queue:
            return True
        is_unknown = self._send_buffer_bytes is None
        return period.is_rwnd_limited or (period.is_sndbuf_limited and is_unknown)

    def _try_more(self, period: TcpPeriod) -> None:
        num = self.num_stripes()
        if num < self.max_stripes:
            self._trial = _Trial(self._added, period.bytes_per_s)
            self._added += num

    def _go_on(self, trial: _Trial, period: TcpPeriod, now: float) -> None:
        trial.num_periods += 1
        if trial.num_periods < PERIODS_OF_TRIAL:
            return
        self._trial = None
        if period.bytes_per_s >= GAIN * trial.rate_before:
            self._wait_s = FIRST_WAIT_S
            return
        self._added = trial.added_before
        self._next_trial_s = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, LAST_WAIT_S)

    def _rest(self) -> None:
        self._num_calm += 1
        if self._num_calm >= CALM_PERIODS:
            self._num_calm = 0
            self._added //= 2


def stripes_for_buffers(held_bytes: float, send_buffer_bytes: int) -> int:
    """As many as have room for what the path holds, and one more where they are nearly full."""
    needed = math.ceil(held_bytes / (USABLE * send_buffer_bytes))
    is_full = held_bytes > NEARLY_FULL * needed * send_buffer_bytes
    return needed + is_full
