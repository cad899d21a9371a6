"""How many connections of a pair ``auto`` uses now. A policy: no I/O, no clock, no connections.

One connection is enough unless something holds each of them back: the kernel's send buffer, the
receiver's window, or losses under a congestion control that takes every loss for congestion. So
there are as many as what the path holds needs in buffers, where the buffers' size is known; and one
step more is tried when the kernel says that connections were held back, kept only if together they
then brought more, since each connection beyond what is needed costs its own start-up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kvtransfer.limits import MAX_AUTO_STRIPES
from kvtransfer.path import PathEstimator
from kvtransfer.tcp_sample import TcpSample

START_STRIPES = 2
USABLE = 0.7  # of a send buffer's bytes, those that are page bytes on their way
NEARLY_FULL = 0.6  # of the buffers: what holds back may be they
# A period is judged when it was long enough, and most of it busy.
PERIOD_ROUND_TRIPS = 10
LEAST_PERIOD_S = 0.5
BUSY = 0.8
HELD_BACK = 0.2  # share of the busy time in which a buffer or a window was full
LOSSY = 1e-5  # share of bytes that were sent again
GAIN = 1.1
FIRST_WAIT_S = 5.0
LAST_WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class _Period:
    """What all connections did together between two looks."""

    seconds: float
    busy_s: float  # of the busiest
    acked_bytes: int
    resent_bytes: int
    limited_share: float  # of the busy time of all

    @property
    def bytes_per_s(self) -> float:
        return self.acked_bytes / self.seconds

    @property
    def is_held_back(self) -> bool:
        return self.limited_share > HELD_BACK or self.resent_bytes > LOSSY * self.acked_bytes


class StripePolicy:
    """``send_buffer_bytes``: the most that the kernel gives one connection; None: unknown."""

    def __init__(
        self,
        path: PathEstimator,
        *,
        send_buffer_bytes: int | None = None,
        max_stripes: int = MAX_AUTO_STRIPES,
    ) -> None:
        self._path = path
        self._send_buffer_bytes = send_buffer_bytes
        self._max_stripes = max_stripes
        self._tried = min(START_STRIPES, max_stripes)  # as many as the kernel's word asks for
        self._before: tuple[int, float] | None = None  # a trial runs: stripes and rate before it
        self._wait_s = FIRST_WAIT_S
        self._next_trial_s = -math.inf
        self._samples: Sequence[TcpSample] = ()
        self._since_s = 0.0

    @property
    def max_stripes(self) -> int:
        return self._max_stripes

    def num_stripes(self) -> int:
        return min(max(self._tried, self._for_buffers()), self._max_stripes)

    def on_tcp(self, samples: Sequence[TcpSample], *, now: float) -> None:
        """One sample of each connection, always in the same order; new ones come last.

        Call about once a round trip while something is sent.
        """
        if not samples or len(samples) != len(self._samples):
            self._look(samples, now)
            return
        period_s = max(LEAST_PERIOD_S, PERIOD_ROUND_TRIPS * (self._path.rtt_s or 0.0))
        if now - self._since_s < period_s:
            return
        period = _period(self._samples, samples, now - self._since_s)
        self._look(samples, now)
        if period.busy_s >= BUSY * period.seconds:
            self._judge(period, now)

    def _look(self, samples: Sequence[TcpSample], now: float) -> None:
        self._samples, self._since_s = tuple(samples), now

    def _for_buffers(self) -> int:
        held_bytes = self._path.held_bytes
        if held_bytes is None or self._send_buffer_bytes is None:
            return 1
        return stripes_for_buffers(held_bytes, self._send_buffer_bytes)

    def _judge(self, period: _Period, now: float) -> None:
        if self._before is not None:
            self._end_trial(*self._before, period, now)
        elif period.is_held_back and now >= self._next_trial_s:
            self._try_more(period)

    def _try_more(self, period: _Period) -> None:
        num = self.num_stripes()
        more = min(num + max(1, num // 2), self._max_stripes)
        if more > num:
            self._before = num, period.bytes_per_s
            self._tried = more

    def _end_trial(self, num: int, bytes_per_s: float, period: _Period, now: float) -> None:
        self._before = None
        if period.bytes_per_s >= GAIN * bytes_per_s:
            self._wait_s = FIRST_WAIT_S
            return
        self._tried = num
        self._next_trial_s = now + self._wait_s
        self._wait_s = min(2 * self._wait_s, LAST_WAIT_S)


def stripes_for_buffers(held_bytes: float, send_buffer_bytes: int) -> int:
    """As many as have room for what the path holds, and one more where they are nearly full."""
    needed = math.ceil(held_bytes / (USABLE * send_buffer_bytes))
    is_full = held_bytes > NEARLY_FULL * needed * send_buffer_bytes
    return needed + is_full


def _period(before: Sequence[TcpSample], after: Sequence[TcpSample], seconds: float) -> _Period:
    pairs = list(zip(before, after, strict=True))
    busy_s = sum(new.busy_s - old.busy_s for old, new in pairs)
    limited_s = sum(
        new.sndbuf_limited_s + new.rwnd_limited_s - old.sndbuf_limited_s - old.rwnd_limited_s
        for old, new in pairs
    )
    return _Period(
        seconds=seconds,
        busy_s=max(new.busy_s - old.busy_s for old, new in pairs),
        acked_bytes=sum(new.bytes_acked - old.bytes_acked for old, new in pairs),
        resent_bytes=sum(new.bytes_retransmitted - old.bytes_retransmitted for old, new in pairs),
        limited_share=limited_s / busy_s if busy_s > 0 else 0.0,
    )
