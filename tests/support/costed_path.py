"""One transfer over a path with a round trip, a rate and software costs, in virtual time.

The real ``FrameQueue`` decides what leaves; ``world`` is the truth that its measurements are to
find. One processor at each end: the sender prepares one frame after the other, the receiver handles
one after the other. ``hidden_s`` of a frame's cost at each end is what any message costs, a ping
too, and is not seen in measuring what a frame takes. The transport takes ``AHEAD_BYTES`` more than
the line has carried.
"""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import count

from kvtransfer.accounting import SendState
from kvtransfer.credit import Credit
from kvtransfer.frame_queue import FrameQueue, SenderState
from kvtransfer.limits import limits_for
from kvtransfer.messages import Handoff, Reply
from kvtransfer.path import PathEstimator
from kvtransfer.path_model import Path
from kvtransfer.send_stripe import OutgoingFrame
from kvtransfer.stripe_policy import StripePolicy
from kvtransfer.window import window_for
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout
from pdcore.settings import TransferSettings

AHEAD_BYTES = 4 * 2**20


class CostedTransfer:
    def __init__(
        self,
        mode: str,
        settings: TransferSettings,
        layout: KvLayout,
        page_ready_s: Sequence[float],
        world: Path,
        *,
        knows_rate: bool = False,
        hidden_s: float = 0.0,
    ) -> None:
        self.limits = limits_for(mode, settings, layout)
        self.path = PathEstimator()
        self.path.on_ping(world.rtt_s + 2 * hidden_s, now=0.0)
        if knows_rate:
            self._carry_before(world)
        self.queue = FrameQueue(
            TransferId("costed"),
            layout,
            num_pages=len(page_ready_s),
            limits=self.limits,
            window=window_for(self.limits, self.path),
            credit=Credit(settings.credit_bytes),
            path=self.path,
            stripes=StripePolicy(self.path),
            settings=settings,
        )
        self.now = 0.0
        self.committed_s = 0.0
        self._world = world
        self._hidden_s = hidden_s
        self._credit_bytes = settings.credit_bytes
        self._sender_free_s = self._line_free_s = self._receiver_free_s = 0.0
        self._acked = [[0, 0] for _ in range(self.queue.max_stripes)]  # frames, bytes
        self._missing_bytes = self.queue.page_bytes
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        for ready_s in sorted(set(page_ready_s)):
            num_pages = bisect_right(page_ready_s, ready_s)
            self._at(ready_s, lambda ready=num_pages: self._ready(ready))
        self._at(page_ready_s[-1], lambda: self.queue.hand_off((1,), 0, self.now))

    def run(self) -> float:
        """Its time, as its sender reports it."""
        for stripe in range(self.queue.max_stripes):
            self.queue.open_stream(stripe, 0.0)
        while self._events:
            self.now, _, action = heapq.heappop(self._events)
            action()
            self._pump()
        assert self.queue.state is SenderState.COMMITTED
        return sum(self.queue.accounting.seconds(self.committed_s).values())

    def _carry_before(self, world: Path) -> None:
        """An earlier transfer has shown what the line carries."""
        mark = self.path.sent(AHEAD_BYTES, is_limited=True, now=-1.0)
        self.path.delivered(mark, AHEAD_BYTES, now=-1.0 + AHEAD_BYTES / world.link_bytes_per_s)

    def _at(self, time_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, next(self._order), action))

    def _ready(self, num_pages: int) -> None:
        self.queue.pages_ready(num_pages, self.now)

    def _pump(self) -> None:
        for stripe in range(self.queue.max_stripes):
            if self.now < self._sender_free_s:
                return
            message = self.queue.next_message(stripe, self.now)
            if isinstance(message, OutgoingFrame):
                self._send(stripe, message)
            elif isinstance(message, Handoff):
                self._send_handoff(stripe)

    def _send_handoff(self, stripe: int) -> None:
        arrives_s = max(self.now, self._line_free_s) + self._world.rtt_s / 2
        self._at(max(arrives_s, self._receiver_free_s), lambda: self._reply(stripe))

    def _send(self, stripe: int, frame: OutgoingFrame) -> None:
        world, queue = self._world, self.queue
        cost_s = world.frame_cost_s - world.receive_cost_s
        prepared_s = self.now + cost_s
        self._line_free_s = max(prepared_s, self._line_free_s)
        self._line_free_s += frame.nbytes / world.link_bytes_per_s
        taken_s = max(prepared_s, self._line_free_s - AHEAD_BYTES / world.link_bytes_per_s)
        self._sender_free_s = taken_s
        queue.accounting.busy(stripe, SendState.PREPARE, self.now)
        queue.record.prepared(frame.nbytes, cost_s - self._hidden_s)
        self._at(prepared_s, lambda: queue.accounting.busy(stripe, SendState.TRANSPORT, prepared_s))
        queue.record.written(frame.nbytes, taken_s - prepared_s)
        self._at(taken_s, lambda: queue.accounting.idle(stripe, taken_s))
        arrived_s = max(self._line_free_s + world.rtt_s / 2, self._receiver_free_s)
        self._receiver_free_s = arrived_s + world.receive_cost_s
        self._at(self._receiver_free_s, lambda: self._reply(stripe, frame.nbytes))

    def _reply(self, stripe: int, nbytes: int = 0) -> None:
        """``nbytes`` 0: to the handoff. The commit comes with whatever is received last."""
        acked = self._acked[stripe]
        acked[0] += nbytes > 0
        acked[1] += nbytes
        self._missing_bytes -= nbytes
        is_last = not self._missing_bytes and (nbytes == 0)
        busy_s = acked[0] * (self._world.receive_cost_s - self._hidden_s)
        reply = Reply(0, acked[0], acked[1], self._credit_bytes, is_last, busy_s)
        self._at(self.now + self._world.rtt_s / 2, lambda: self._replied(stripe, reply))

    def _replied(self, stripe: int, reply: Reply) -> None:
        self.queue.on_reply(stripe, reply, self.now)
        if reply.committed:
            self.committed_s = self.now
