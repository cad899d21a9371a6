"""Warm-ups of one pair, one at a time: when its connections open, before a transfer after idle, and
before the last pages of a prompt that is computed slowly.

Pages go first: a warm-up ends when a frame leaves. ``Warmth`` decides whether there is one and how
large it may be, ``StripePolicy`` over how many connections; every byte of it is counted.
"""

import asyncio
import logging
from time import monotonic

from kvtransfer.changes import Changes, wait_until
from kvtransfer.data_channels import DataChannels
from kvtransfer.path import PathEstimator
from kvtransfer.stripe_policy import StripePolicy
from kvtransfer.trace import trace_of
from kvtransfer.warm_path import WarmUp
from kvtransfer.warmth import COLD_AFTER_S, Warmth
from pdcore.errors import PdspanError

log = logging.getLogger(__name__)

LEAST_LOOK_S = 0.02
ENOUGH_PINGS = 3  # to tell a short path from a slow answer
LEAD_ROUND_TRIPS = 12  # a slow start, and a flight at full rate
MOST_S = 10.0  # of one warm-up: a receiver may take bytes and never answer


class Busy:
    """Set while some work of the pair runs."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self._num = 0

    def begin(self) -> None:
        self._num += 1
        self.event.set()

    def end(self) -> None:
        self._num -= 1
        if not self._num:
            self.event.clear()


class Warmer:
    """``run`` it for as long as the pair lives. ``warmup_bytes`` counts from the beginning."""

    def __init__(
        self,
        channels: DataChannels,
        path: PathEstimator,
        stripes: StripePolicy,
        busy: Busy,
        max_bytes: int,
    ) -> None:
        self.warmup_bytes = 0
        self._channels = channels
        self._path = path
        self._stripes = stripes
        self._busy = busy
        self._warmth = Warmth(max_bytes)
        self._expected_bytes: int | None = None
        self._is_asked = False
        self._later: tuple[int, float] | None = None  # bytes that are expected, when to warm up
        self._num_pings = 0  # since the connections were opened
        self._running: asyncio.Task[None] | None = None
        self._unreported_bytes = 0
        self._changes = Changes()

    def opened(self) -> None:
        """The connections are new."""
        self._num_pings = 0
        self._warmth.reopened(monotonic())
        self._ask(None)

    def expect(self, nbytes: int) -> None:
        """A transfer of ``nbytes`` comes soon."""
        self._ask(nbytes)

    def expect_later(self, nbytes: int, *, at_s: float) -> None:
        """More pages may be ready from ``at_s`` on, perhaps after a rest. What is sent until then
        changes nothing."""
        lead_s = LEAD_ROUND_TRIPS * (self._path.rtt_s or 0.0)
        self._later = nbytes, max(at_s - lead_s, monotonic() + COLD_AFTER_S)
        self._changes.notify()

    def path_changed(self) -> None:
        """A ping has come back: a warm-up may have waited for the first ones."""
        self._num_pings += 1
        if self._is_asked:
            self._changes.notify()

    def frame_leaves(self) -> None:
        """Pages are on their way: what warms up ends, and what was asked for is not wanted."""
        self._warmth.moved(monotonic())
        self._is_asked = False
        if self._running is not None and not self._running.cancelling():
            self._running.cancel()

    def take_unreported_bytes(self) -> int:
        """Warm-up bytes since the last call."""
        nbytes, self._unreported_bytes = self._unreported_bytes, 0
        return nbytes

    async def run(self) -> None:
        """Ends only when cancelled."""
        while True:
            change = self._changes.next()
            self._ask_if_due()
            max_bytes = self._asked_bytes()
            if max_bytes:
                await self._warm_up(max_bytes)
            else:
                await wait_until(change, None if self._later is None else self._later[1])

    def _ask_if_due(self) -> None:
        if self._later is not None and self._later[1] <= monotonic():
            nbytes, self._later = self._later[0], None
            if self._busy.event.is_set():  # else the transfer has ended meanwhile
                self._ask(nbytes)

    def _ask(self, expected_bytes: int | None) -> None:
        if self._running is None:
            self._is_asked, self._expected_bytes = True, expected_bytes
            self._changes.notify()

    def _asked_bytes(self) -> int:
        """Of the warm-up that is asked for and worth it; it is asked for no longer."""
        if not self._is_asked or self._num_pings < ENOUGH_PINGS:
            return 0
        self._is_asked = False
        return self._warmth.budget_bytes(self._path.rtt_s, self._expected_bytes, now=monotonic())

    async def _warm_up(self, max_bytes: int) -> None:
        rtt_s = self._path.rtt_s
        assert rtt_s is not None, "the budget is nothing before it is known"
        channels = self._channels.first(self._stripes.num_stripes())
        warm_up = WarmUp(channels, rtt_s=rtt_s, max_bytes=max_bytes, path=self._path)
        self._busy.begin()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._running = tasks.create_task(_attempt(warm_up))
                widening = tasks.create_task(self._widen(warm_up, max(rtt_s, LEAST_LOOK_S)))
                await asyncio.wait([self._running])
                widening.cancel()
        finally:
            self._busy.end()
            self._running = None
            self.warmup_bytes += warm_up.sent_bytes
            self._unreported_bytes += warm_up.sent_bytes
            self._warmth.moved(monotonic())
            self._trace(warm_up)

    def _trace(self, warm_up: WarmUp) -> None:
        trace = trace_of(self._channels.address)
        if trace is not None:
            trace.event(
                "warmed",
                monotonic(),
                bytes=warm_up.sent_bytes,
                stripes=warm_up.num_channels,
                is_warm=warm_up.is_warm,
            )

    async def _widen(self, warm_up: WarmUp, spacing_s: float) -> None:
        """What the path turns out to hold may need more connections."""
        while True:
            await asyncio.sleep(spacing_s)
            channels = self._channels.first(self._stripes.num_stripes())
            for channel in channels[warm_up.num_channels :]:
                warm_up.add(channel)


async def _attempt(warm_up: WarmUp) -> None:
    """A warm-up that fails is no harm: the transfer that comes will say what is wrong."""
    try:
        async with asyncio.timeout(MOST_S):
            await warm_up.run()
    except TimeoutError:
        log.info("a warm-up took longer than %g s", MOST_S)
    except PdspanError as error:
        log.info("a warm-up ended early: %s", error)
