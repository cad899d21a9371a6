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

PACKET_BYTES = 64 * 2**10
LEAST_PING_SPACING_S = 0.02
IDLE_PING_SPACING_S = 1.0
LLAMA_8B = KvLayout("llama-3-8b", 32, 8, 128, 16, "bfloat16")  # 2 MiB a page
MAX_EVENTS = 1_000_000


@dataclass(frozen=True)
class Line:
    """From ``at_s`` on. ``rate`` is in bytes a second; 0: cut."""

    at_s: float
    rate: float
    rtt_s: float

    @property
    def held_bytes(self) -> float:
        return self.rate * self.rtt_s


@dataclass(frozen=True)
class Packet:
    nbytes: int
    arrived: Callable[[], None] | None = None  # at the other end


class Transfer:
    """``chunks``: (time, pages that are ready from then on)."""

    def __init__(self, queue: FrameQueue, chunks: Sequence[tuple[float, int]]) -> None:
        self.queue = queue
        self.chunks = chunks
        self.acked = [[0, 0] for _ in range(queue.max_stripes)]  # frames, bytes
        self.opened: set[int] = set()
        self.committed_s: float | None = None

    @property
    def start_s(self) -> float:
        return self.chunks[0][0]


class ChangingPath:
    def __init__(
        self,
        lines: Sequence[Line],
        *,
        pings_queue: bool,
        settings: TransferSettings | None = None,
        layout: KvLayout = LLAMA_8B,
    ) -> None:
        self.now = 0.0
        self.settings = settings or TransferSettings()
        self.layout = layout
        self.credit = Credit(self.settings.credit_bytes)
        self.path = PathEstimator()
        self.stripes = StripePolicy(self.path)
        self.window = PathWindow(self.path, self.settings.window_bytes)
        self.transfers: dict[TransferId, Transfer] = {}
        self.watch: Callable[[], None] = lambda: None  # called after every event
        self._lines = list(lines)
        self._pings_queue = pings_queue
        self._packets: deque[Packet] = deque()
        self._is_serving = False
        self._down_s = self._up_s = 0.0  # last arrival, each way
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._num_running = 0
        self._at(0.0, self._ping)

    @property
    def line(self) -> Line:
        return [line for line in self._lines if line.at_s <= self.now][-1]

    def add(self, name: str, chunks: Sequence[tuple[float, int]], mode: str = "auto") -> Transfer:
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
            self._at(at_s, lambda pages=num_pages: self._ready(transfer, pages))
        return transfer

    def run(self, until_s: float = float("inf")) -> None:
        """Until every transfer is committed, or ``until_s``."""
        for _ in range(MAX_EVENTS):
            if not self._num_running or self._events[0][0] > until_s:
                return
            self.now, _, action = heapq.heappop(self._events)
            action()
            self._pump()
            self.watch()
        raise AssertionError("the simulation does not end")

    def _at(self, time_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time_s, self.now), next(self._order), action))

    # The sender.

    def _ready(self, transfer: Transfer, num_pages: int) -> None:
        transfer.queue.pages_ready(num_pages, self.now)
        if num_pages == transfer.chunks[-1][1]:
            transfer.queue.hand_off((1,), 0, self.now)

    def _pump(self) -> None:
        """Everyone may send; whose turn it is in the line for credit, first."""
        is_moving = True
        while is_moving:
            first = self.credit.next_in_line()
            order = sorted(
                self.transfers.values(), key=lambda t: t is not self.transfers.get(first)
            )
            is_moving = any(self._send_one(transfer) for transfer in order)

    def _send_one(self, transfer: Transfer) -> bool:
        queue = transfer.queue
        if queue.is_over or transfer.start_s > self.now:
            return False
        for stripe in range(queue.num_stripes):
            if stripe not in transfer.opened:
                transfer.opened.add(stripe)
                queue.open_stream(stripe, self.now)
        for stripe in sorted(transfer.opened):
            message = queue.next_message(stripe, self.now)
            if message is not None:
                self._send(transfer, stripe, message)
                return True
        return False

    def _send(self, transfer: Transfer, stripe: int, message: OutgoingFrame | Handoff) -> None:
        nbytes = message.nbytes if isinstance(message, OutgoingFrame) else 0
        num_whole, rest = divmod(nbytes, PACKET_BYTES)
        self._packets.extend(Packet(PACKET_BYTES) for _ in range(num_whole))
        self._packets.append(Packet(rest, lambda: self._arrived(transfer, stripe, nbytes)))
        self._serve()

    # The line.

    def _serve(self) -> None:
        if self._is_serving or not self._packets:
            return
        self._is_serving = True
        if not self.line.rate:
            self._at(min(line.at_s for line in self._lines if line.at_s > self.now), self._resume)
            return
        packet = self._packets.popleft()
        self._at(self.now + packet.nbytes / self.line.rate, lambda: self._served(packet))

    def _resume(self) -> None:
        self._is_serving = False
        self._serve()

    def _served(self, packet: Packet) -> None:
        self._down_s = max(self._down_s, self.now + self.line.rtt_s / 2)
        if packet.arrived is not None:
            self._at(self._down_s, packet.arrived)
        self._resume()

    def _back(self, action: Callable[[], None]) -> None:
        self._up_s = max(self._up_s, self.now + self.line.rtt_s / 2)
        self._at(self._up_s, action)

    # The receiver.

    def _arrived(self, transfer: Transfer, stripe: int, nbytes: int) -> None:
        acked = transfer.acked[stripe]
        acked[0] += nbytes > 0
        acked[1] += nbytes
        total = sum(taken for _, taken in transfer.acked)
        is_committed = not nbytes and total == transfer.queue.page_bytes
        reply = Reply(0, acked[0], acked[1], self.settings.credit_bytes, is_committed)
        self._back(lambda: self._replied(transfer, stripe, reply))

    def _replied(self, transfer: Transfer, stripe: int, reply: Reply) -> None:
        transfer.queue.on_reply(stripe, reply, self.now)
        if transfer.queue.state is SenderState.COMMITTED:
            transfer.committed_s = self.now
            self._num_running -= 1

    # Pings.

    def _ping(self) -> None:
        sent_s = self.now
        ping = Packet(0, lambda: self._back(lambda: self._pinged(sent_s)))
        if self._pings_queue:
            self._packets.append(ping)
            self._serve()
        elif self.line.rate:
            self._served_past(ping)
        else:
            self._at(
                min(line.at_s for line in self._lines if line.at_s > self.now),
                lambda: self._served_past(ping),
            )

    def _served_past(self, ping: Packet) -> None:
        assert ping.arrived is not None
        self._at(self.now + self.line.rtt_s / 2, ping.arrived)

    def _pinged(self, sent_s: float) -> None:
        rtt_s = self.now - sent_s
        self.path.on_ping(rtt_s, now=self.now)
        is_busy = any(
            transfer.start_s <= self.now and not transfer.queue.is_over
            for transfer in self.transfers.values()
        )
        spacing_s = LEAST_PING_SPACING_S if is_busy else IDLE_PING_SPACING_S
        self._at(sent_s + max(rtt_s, spacing_s), self._ping)
