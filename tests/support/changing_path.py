"""Transfers of one pair over a line whose rate and delay change, in virtual time, without bytes.

The real ``FrameQueue``, ``Credit``, ``PathEstimator`` and ``StripePolicy`` decide; the line is one
queue, served packet by packet at the rate of the moment, then a delay each way. Pings go one after
the other, behind the pages in that queue or past it. The receiver acknowledges a frame with its
last packet.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from kvtransfer.credit import Credit
from kvtransfer.frame_queue import FrameQueue, SenderState
from kvtransfer.limits import limits_for
from kvtransfer.messages import Handoff, Reply
from kvtransfer.path import PathEstimator
from kvtransfer.send_stripe import OutgoingFrame
from kvtransfer.stripe_policy import StripePolicy
from kvtransfer.window import PathWindow, window_for
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout
from pdcore.settings import TransferSettings

LAYOUT = KvLayout("half a mebibyte a page", 32, 8, 128, 4, "bfloat16")
PACKET_BYTES = 128 * 2**10
PING_SPACING_S = 0.02
IDLE_PING_SPACING_S = 1.0
MAX_EVENTS = 1_000_000


@dataclass(frozen=True)
class Line:
    """From ``from_s`` on. ``rate`` is in bytes a second; 0: cut."""

    rate: float
    rtt_s: float
    from_s: float = 0.0


class Transfer:
    """``chunks``: (time, how many pages are ready from then on)."""

    def __init__(self, queue: FrameQueue, chunks: Sequence[tuple[float, int]]) -> None:
        self.queue = queue
        self.chunks = chunks
        self.start_s = chunks[0][0]
        self.committed_s: float | None = None
        self.num_opened = 0
        self.acked = [[0, 0] for _ in range(queue.max_stripes)]  # frames, bytes

    @property
    def duration_s(self) -> float:
        assert self.committed_s is not None
        return self.committed_s - self.start_s

    @property
    def delivered_bytes(self) -> int:
        """As the sender knows."""
        return self.queue.wire_bytes - self.queue.in_flight_bytes


class ChangingPath:
    def __init__(
        self,
        *lines: Line,
        pings_queue: bool = True,
        settings: TransferSettings | None = None,
        layout: KvLayout = LAYOUT,
    ) -> None:
        self.now = 0.0
        self.settings = settings or TransferSettings()
        self.layout = layout
        self.credit = Credit(self.settings.credit_bytes)
        self.path = PathEstimator()
        self.stripes = StripePolicy(self.path)
        self.window = PathWindow(self.path, self.settings.window_bytes)
        self.transfers: dict[TransferId, Transfer] = {}
        self._lines = lines
        self._pings_queue = pings_queue
        self._num_running = 0
        self._packets: deque[tuple[int, Callable[[], None] | None]] = deque()
        self._is_serving = False
        self._down_s = self._up_s = 0.0  # last arrival, each way
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._at(0.0, self._ping)

    def add(self, name: str, *chunks: tuple[float, int], mode: str = "auto") -> Transfer:
        limits = limits_for(mode, self.settings, self.layout)
        queue = FrameQueue(
            TransferId(name),
            self.layout,
            num_pages=chunks[-1][1],
            limits=limits,
            window=window_for(limits, self.path),
            credit=self.credit,
            path=self.path,
            stripes=self.stripes,
            settings=self.settings,
        )
        transfer = Transfer(queue, chunks)
        self.transfers[TransferId(name)] = transfer
        self._num_running += 1
        for at_s, num_pages in chunks:
            self._at(at_s, lambda num_pages=num_pages: self._ready(transfer, num_pages))
        return transfer

    def run(self, until_s: float = float("inf")) -> None:
        """Until all is committed, or nothing more happens before ``until_s``."""
        while self._num_running and self.step(until_s):
            pass

    def step(self, until_s: float = float("inf")) -> bool:
        """One event, and what follows from it at once; False: none before ``until_s``."""
        if self._events[0][0] > until_s:
            return False
        self.now, number, action = heapq.heappop(self._events)
        assert number < MAX_EVENTS, "the simulation does not end"
        action()
        while self._send_one():
            pass
        return True

    def _at(self, time_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time_s, self.now), next(self._order), action))

    # The sender.

    def _ready(self, transfer: Transfer, num_pages: int) -> None:
        transfer.queue.pages_ready(num_pages, self.now)
        if num_pages == transfer.chunks[-1][1]:
            transfer.queue.hand_off((1,), 0, self.now)

    def _send_one(self) -> bool:
        """Whose turn it is in the line for credit, asks first; then who has sent longest ago."""
        first = self.credit.next_in_line()
        for name in sorted(self.transfers, key=lambda name: name != first):
            transfer = self.transfers[name]
            if transfer.start_s <= self.now and self._ask(transfer):
                self.transfers[name] = self.transfers.pop(name)
                return True
        return False

    def _ask(self, transfer: Transfer) -> bool:
        queue = transfer.queue
        while not queue.is_over and transfer.num_opened < queue.num_stripes:
            queue.open_stream(transfer.num_opened, self.now)
            transfer.num_opened += 1
        for stripe in range(transfer.num_opened):
            message = queue.next_message(stripe, self.now)
            if message is not None:
                self._send(transfer, stripe, message)
                return True
        return False

    def _send(self, transfer: Transfer, stripe: int, message: OutgoingFrame | Handoff) -> None:
        nbytes = message.nbytes if isinstance(message, OutgoingFrame) else 0
        num_whole, rest = divmod(nbytes, PACKET_BYTES)
        self._packets.extend((PACKET_BYTES, None) for _ in range(num_whole))
        self._packets.append((rest, lambda: self._arrived(transfer, stripe, nbytes)))
        self._serve()

    def _replied(self, transfer: Transfer, stripe: int, reply: Reply) -> None:
        transfer.queue.on_reply(stripe, reply, self.now)
        if transfer.queue.state is SenderState.COMMITTED and transfer.committed_s is None:
            transfer.committed_s = self.now
            self._num_running -= 1

    # The line.

    @property
    def _line(self) -> Line:
        return [line for line in self._lines if line.from_s <= self.now][-1]

    def _mended_s(self) -> float:
        """When the line carries something, from now on."""
        later = [line.from_s for line in self._lines if line.from_s > self.now and line.rate]
        return self.now if self._line.rate else later[0]

    def _serve(self) -> None:
        if self._is_serving or not self._packets:
            return
        self._is_serving = True
        if not self._line.rate:
            self._at(self._mended_s(), self._serve_next)
            return
        nbytes, arrive = self._packets.popleft()
        self._at(self.now + nbytes / self._line.rate, lambda: self._served(arrive))

    def _serve_next(self) -> None:
        self._is_serving = False
        self._serve()

    def _served(self, arrive: Callable[[], None] | None) -> None:
        self._down_s = max(self._down_s, self.now + self._line.rtt_s / 2)
        if arrive is not None:
            self._at(self._down_s, arrive)
        self._serve_next()

    def _back(self, action: Callable[[], None]) -> None:
        self._up_s = max(self._up_s, self.now + self._line.rtt_s / 2)
        self._at(self._up_s, action)

    # The receiver.

    def _arrived(self, transfer: Transfer, stripe: int, nbytes: int) -> None:
        acked = transfer.acked[stripe]
        acked[0] += nbytes > 0
        acked[1] += nbytes
        has_all = sum(taken for _, taken in transfer.acked) == transfer.queue.page_bytes
        committed = has_all and transfer.queue.state is SenderState.HANDED_OFF
        reply = Reply(0, acked[0], acked[1], self.settings.credit_bytes, committed)
        self._back(lambda: self._replied(transfer, stripe, reply))

    # Pings.

    def _ping(self) -> None:
        sent_s = self.now
        pong = lambda: self._back(lambda: self._ponged(sent_s))  # noqa: E731
        if self._pings_queue:
            self._packets.append((0, pong))
            self._serve()
        else:
            self._at(self._mended_s() + self._line.rtt_s / 2, pong)

    def _ponged(self, sent_s: float) -> None:
        self.path.on_ping(self.now - sent_s, now=self.now)
        running = [each for each in self.transfers.values() if each.committed_s is None]
        is_busy = any(each.start_s <= self.now for each in running)
        spacing_s = PING_SPACING_S if is_busy else IDLE_PING_SPACING_S
        self._at(sent_s + spacing_s, self._ping)
