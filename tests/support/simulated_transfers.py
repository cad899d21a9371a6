"""Both transfer halves joined by a simulated link, in virtual time.

The real ``FrameQueue``, ``Credit``, ``PathEstimator`` and ``TransferRegistry``, and real wire
bytes; only the clock, the link, ``Weather`` and the loop that asks the halves what to do are
simulated. Each stripe is an ordered connection with its own delay; all share one line of ``rate``
bytes a second. After every event the invariants of ``Simulation.check`` are asserted.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from kvtransfer.credit import Credit
from kvtransfer.frame_queue import FrameQueue, SenderState
from kvtransfer.framing import checksum, decode_push, decode_reply, encode_push, encode_reply
from kvtransfer.handshake import PROTOCOL
from kvtransfer.incoming import IncomingTransfer
from kvtransfer.incoming_stream import IncomingStream, StreamState
from kvtransfer.limits import limits_for
from kvtransfer.messages import Body, Extent, Frame, Handoff, Opening
from kvtransfer.path import PathEstimator
from kvtransfer.registry import TransferRegistry
from kvtransfer.window import window_for
from page_memory import RECEIVER, SENDER, TINY, PageMemory, Target
from pdcore.errors import PdspanError
from pdcore.generation import TransferId
from pdcore.settings import TransferSettings

MAX_EVENTS = 100_000


@dataclass(frozen=True)
class Cut:
    """One connection breaks. What is on its way is lost, or still arrives until it is noticed."""

    at_s: float
    stripe: int
    sender_notices_s: float
    receiver_notices_s: float
    reopens_s: float  # after the sender noticed
    arrives_late: bool


@dataclass(frozen=True)
class Request:
    """One transfer: when its pages are ready, when ``Generate`` announces it, what goes wrong."""

    page_ready_s: tuple[float, ...]
    handoff_s: float  # after the last page
    expect_s: float
    cuts: tuple[Cut, ...] = ()
    cancel_s: float | None = None  # the sender's owner leaves
    abort_s: float | None = None  # the receiver's owner leaves


@dataclass(frozen=True)
class Link:
    delays_s: tuple[float, ...]  # one way, of each stripe
    jitter_s: float
    rate: float
    duplicates: float  # share of frames, handoffs and replies that arrive twice
    seed: int


@dataclass(frozen=True)
class Weather:
    """What a pair meets besides its transfers: (time, value) each, true or not."""

    pings: tuple[tuple[float, float], ...] = ()
    credits: tuple[tuple[float, int], ...] = ()  # what the receiver grants from then on
    stripes: tuple[tuple[float, int], ...] = ()  # how many connections auto is to use


class FairCredit(Credit):
    """Counts how many frames pass a transfer that waits."""

    def __init__(self, granted_bytes: int) -> None:
        super().__init__(granted_bytes)
        self.num_passed: Counter[TransferId] = Counter()

    def take(self, transfer: TransferId, nbytes: int, window_bytes: int | None = None) -> bool:
        is_taken = super().take(transfer, nbytes, window_bytes)
        if is_taken:
            self.num_passed.pop(transfer, None)
            self.num_passed.update(list(self._waiting))
        return is_taken

    def leave_line(self, transfer: TransferId) -> None:
        super().leave_line(transfer)
        self.num_passed.pop(transfer, None)


@dataclass
class ToldStripes:
    """A policy that does as it is told."""

    num: int = 1

    def num_stripes(self) -> int:
        return self.num


CALM = Weather()


@dataclass(eq=False)
class Connection:
    stripe: int
    attempt: int
    is_up: bool = True
    arrives_late: bool = False
    down_s: float = 0.0  # last arrival, each way: a connection keeps order
    up_s: float = 0.0
    incoming: IncomingStream | None = None
    backlog: list[bytes] = field(default_factory=list)
    is_answered_finally: bool = False


class SimulatedTransfer:
    def __init__(
        self, simulation: "Simulation", number: int, request: Request, first_page: int
    ) -> None:
        self.id = TransferId(f"t{number}")
        self.request = request
        self.num_pages = len(request.page_ready_s)
        self.num_tokens = self.num_pages * TINY.page_tokens
        self.source = PageMemory(TINY, self.num_pages, seed=number)
        self.pages: Sequence[int] = range(first_page, first_page + self.num_pages)
        self.queue = FrameQueue(
            self.id,
            TINY,
            num_pages=self.num_pages,
            limits=simulation.limits,
            window=window_for(simulation.limits, simulation.path),
            credit=simulation.credit,
            path=simulation.path,
            stripes=simulation.stripes,
            settings=simulation.settings,
        )
        self.num_connected = 0  # stripes that were opened once
        self.connections: dict[int, Connection] = {}  # what the sender writes to
        self.all_connections: list[Connection] = []
        self.busy: set[int] = set()
        self.sender_error: PdspanError | None = None
        self.committed_s: float | None = None
        self.incoming: IncomingTransfer | None = None


class Simulation:
    def __init__(
        self,
        mode: str,
        settings: TransferSettings,
        link: Link,
        requests: Sequence[Request],
        weather: Weather = CALM,
    ) -> None:
        self.now = 0.0
        self.settings = settings
        self.limits = limits_for(mode, settings, TINY)
        self.credit = FairCredit(settings.credit_bytes)
        self.path = PathEstimator()
        self.stripes = ToldStripes()
        num_pages = sum(len(request.page_ready_s) for request in requests)
        self.sink = PageMemory(TINY, num_pages)
        self.registry = TransferRegistry(RECEIVER, TINY, self.sink, settings)
        self.transfers: dict[TransferId, SimulatedTransfer] = {}
        self._credit_bytes = settings.credit_bytes  # as the receiver says
        self._in_flight_bytes: dict[TransferId, int] = {}  # when it was checked last
        self._link = link
        self._random = random.Random(link.seed)
        self._line_free_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._first_page = 0
        for number, request in enumerate(requests):
            self._add(number, request)
        for at_s, rtt_s in weather.pings:
            self._at(at_s, lambda rtt_s=rtt_s: self.path.on_ping(rtt_s, now=self.now))
        for at_s, nbytes in weather.credits:
            self._at(at_s, lambda nbytes=nbytes: self._set_credit(nbytes))
        for at_s, num in weather.stripes:
            self._at(at_s, lambda num=num: setattr(self.stripes, "num", num))

    def run(self) -> None:
        """Until nothing is left to happen."""
        for _ in range(MAX_EVENTS):
            if not self._events:
                return
            self.now, _, action = heapq.heappop(self._events)
            action()
            self._widen()
            self._serve_line()
            self._watch_clocks()
            self.check()
        raise AssertionError("the simulation does not end")

    def check(self) -> None:
        """Window and credit hold for what has left since the last check, and all the counts of
        what is in flight agree; nobody waits longer than for one frame of each of the others."""
        queues = {id_: transfer.queue for id_, transfer in self.transfers.items()}
        in_flight = {id_: queue.in_flight_bytes for id_, queue in queues.items()}
        total = sum(in_flight.values())
        assert total == self.credit.in_flight_bytes == self.path.in_flight_bytes
        for id_, nbytes in in_flight.items():
            if nbytes > self._in_flight_bytes.get(id_, 0):
                self._check_room(queues[id_], total)
        self._in_flight_bytes = in_flight
        assert all(times == 1 for times in self.sink.num_writes.values())
        assert all(num < len(queues) for num in self.credit.num_passed.values())

    def _check_room(self, queue: FrameQueue, total: int) -> None:
        frame = self.limits.frame.pages * self.limits.frame.layers * TINY.layer_bytes
        assert total <= max(self.credit.granted_bytes, frame)
        bounded = total if self.limits.is_adaptive else queue.in_flight_bytes
        assert bounded <= max(queue.window_bytes, frame)

    def _add(self, number: int, request: Request) -> None:
        transfer = SimulatedTransfer(self, number, request, self._first_page)
        self._first_page += transfer.num_pages
        self.transfers[transfer.id] = transfer
        for page, ready_s in enumerate(request.page_ready_s):
            self._at(ready_s, lambda page=page: self._pages_ready(transfer, page + 1))
        self._at(request.page_ready_s[-1] + request.handoff_s, lambda: self._hand_off(transfer))
        self._at(request.expect_s, lambda: self._expect(transfer))
        for cut in request.cuts:
            self._at(cut.at_s, lambda cut=cut: self._cut(transfer, cut))
        if request.cancel_s is not None:
            self._at(request.cancel_s, lambda: self._end_sender(transfer))
        if request.abort_s is not None:
            self._at(request.abort_s, lambda: self._owner_leaves(transfer))

    def _at(self, time_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time_s, self.now), next(self._order), action))

    def _set_credit(self, nbytes: int) -> None:
        """The sender is told with a ``Standing``, and by every reply from now on."""
        self._credit_bytes = nbytes
        self._at(self.now + self._link.delays_s[0], lambda: self.credit.grant(nbytes))

    # The sender's side.

    def _widen(self) -> None:
        """Open the stripes that are to have a stream and never had one."""
        for transfer in self.transfers.values():
            while transfer.num_connected < transfer.queue.num_stripes:
                transfer.num_connected += 1
                self._connect(transfer, transfer.num_connected - 1)

    def _pages_ready(self, transfer: SimulatedTransfer, num_pages: int) -> None:
        transfer.queue.pages_ready(num_pages, self.now)
        self._pump(transfer)

    def _hand_off(self, transfer: SimulatedTransfer) -> None:
        transfer.queue.hand_off((1, 2), 0, self.now)
        self._pump(transfer)

    def _connect(self, transfer: SimulatedTransfer, stripe: int) -> None:
        if transfer.queue.is_over:
            return
        attempt = transfer.queue.open_stream(stripe, self.now)
        connection = Connection(stripe, attempt)
        transfer.connections[stripe] = connection
        transfer.all_connections.append(connection)
        opening = Opening(
            sender=SENDER,
            receiver_epoch=RECEIVER.epoch,
            protocol=PROTOCOL,
            layout=TINY,
            codec="raw",
            extent=Extent(transfer.num_tokens, transfer.num_pages, transfer.queue.max_stripes),
            stripe=stripe,
        )
        self._send(transfer, connection, opening)

    def _pump(self, transfer: SimulatedTransfer) -> None:
        for stripe, connection in list(transfer.connections.items()):
            if stripe in transfer.busy:
                continue
            message = transfer.queue.next_message(stripe, self.now)
            if isinstance(message, Handoff):
                self._send(transfer, connection, message)
            elif message is not None:
                run = message.run
                pages = range(run.first_page, run.first_page + run.num_pages)
                payload = transfer.source.read(pages, run.first_layer, run.num_layers)
                frame = Frame(message.sequence, (run,), checksum(payload))
                self._send(transfer, connection, frame, payload)

    def _send(
        self,
        transfer: SimulatedTransfer,
        connection: Connection,
        body: Body,
        payload: Sequence[memoryview] = (),
    ) -> None:
        """The stripe is busy while the line takes the message."""
        data = encode_push(transfer.id, connection.attempt, body, payload)
        sent_s = max(self.now, self._line_free_s) + len(data) / self._link.rate
        self._line_free_s = sent_s
        transfer.busy.add(connection.stripe)
        self._at(sent_s, lambda: self._sent(transfer, connection))
        times = 1 if isinstance(body, Opening) else self._copies()
        for _ in range(times):
            connection.down_s = max(connection.down_s, sent_s + self._delay(connection))
            self._at(connection.down_s, lambda: self._arrive(transfer, connection, data))

    def _sent(self, transfer: SimulatedTransfer, connection: Connection) -> None:
        if transfer.connections.get(connection.stripe) in (connection, None):
            transfer.busy.discard(connection.stripe)
        self._pump(transfer)

    def _replied(self, transfer: SimulatedTransfer, connection: Connection, data: bytes) -> None:
        if not connection.is_up or transfer.connections.get(connection.stripe) is not connection:
            return
        transfer.queue.on_reply(connection.stripe, decode_reply(data), self.now)
        if transfer.queue.state is SenderState.COMMITTED and transfer.committed_s is None:
            transfer.committed_s = self.now
            self._end_sender(transfer)
        self._pump(transfer)

    def _refused(
        self, transfer: SimulatedTransfer, connection: Connection, error: PdspanError
    ) -> None:
        if connection.is_up and transfer.connections.get(connection.stripe) is connection:
            self._end_sender(transfer, error)

    def _end_sender(self, transfer: SimulatedTransfer, error: PdspanError | None = None) -> None:
        if transfer.queue.state is SenderState.CLOSED:
            return
        transfer.sender_error = error
        transfer.queue.close()
        for connection in transfer.connections.values():
            connection.is_up = False
            self._at(
                self.now + self._delay(connection), lambda c=connection: self._lost(transfer, c)
            )
        transfer.connections.clear()

    def _cut(self, transfer: SimulatedTransfer, cut: Cut) -> None:
        connection = transfer.connections.get(cut.stripe % transfer.queue.max_stripes)
        if connection is None or not connection.is_up:
            return
        connection.is_up = False
        connection.arrives_late = cut.arrives_late
        noticed_s = self.now + cut.sender_notices_s
        self._at(noticed_s, lambda: self._notice(transfer, connection, cut.reopens_s))
        self._at(self.now + cut.receiver_notices_s, lambda: self._lost(transfer, connection))

    def _notice(
        self, transfer: SimulatedTransfer, connection: Connection, reopens_s: float
    ) -> None:
        if transfer.connections.get(connection.stripe) is not connection:
            return
        del transfer.connections[connection.stripe]
        transfer.busy.discard(connection.stripe)
        transfer.queue.on_broken(connection.stripe, self.now)
        self._at(self.now + reopens_s, lambda: self._connect(transfer, connection.stripe))
        self._pump(transfer)

    # The receiver's side.

    def _expect(self, transfer: SimulatedTransfer) -> None:
        target = Target(transfer.num_tokens, transfer.pages)
        transfer.incoming = self.registry.expect(transfer.id, target, self.now)
        self._stir(transfer)

    def _owner_leaves(self, transfer: SimulatedTransfer) -> None:
        if transfer.incoming is not None:
            self.registry.leave(transfer.incoming)
            self._stir(transfer)

    def _arrive(self, transfer: SimulatedTransfer, connection: Connection, data: bytes) -> None:
        incoming = connection.incoming
        is_lost = not connection.is_up and not connection.arrives_late
        if is_lost or connection.is_answered_finally:
            return
        if incoming is None:
            self._open(transfer, connection, data)
        elif incoming.state is StreamState.PARKED:
            connection.backlog.append(data)
        else:
            self.registry.receive(incoming, decode_push(data), self.now)
            if incoming.is_open:
                self._reply(transfer, connection)
        self._stir(transfer)

    def _open(self, transfer: SimulatedTransfer, connection: Connection, data: bytes) -> None:
        try:
            connection.incoming = self.registry.open(decode_push(data), self.now)
        except PdspanError as refusal:
            self._answer_finally(transfer, connection, refusal)
        else:
            self._reply(transfer, connection)
            if connection.incoming.state is StreamState.PARKED:
                self._at(
                    self.now + self.settings.park_s,
                    lambda: self._park_ran_out(transfer, connection),
                )

    def _park_ran_out(self, transfer: SimulatedTransfer, connection: Connection) -> None:
        assert connection.incoming is not None
        self.registry.park_ran_out(connection.incoming)
        self._stir(transfer)

    def _lost(self, transfer: SimulatedTransfer, connection: Connection) -> None:
        """The receiver notices that the connection is gone."""
        connection.arrives_late = False
        if connection.incoming is not None:
            self.registry.broken(connection.incoming, self.now)
        self._stir(transfer)

    def _stir(self, transfer: SimulatedTransfer) -> None:
        """Do for each stream what its state says."""
        for connection in transfer.all_connections:
            incoming = connection.incoming
            if incoming is None or connection.is_answered_finally:
                continue
            if incoming.is_open:
                backlog, connection.backlog = connection.backlog, []
                for data in backlog:
                    self._arrive(transfer, connection, data)
            elif incoming.state is not StreamState.PARKED:
                self._answer_finally(transfer, connection, incoming.error)

    def _answer_finally(
        self, transfer: SimulatedTransfer, connection: Connection, error: PdspanError | None
    ) -> None:
        connection.is_answered_finally = True
        if error is None:
            self._reply(transfer, connection)
        else:
            connection.up_s = max(connection.up_s, self.now + self._delay(connection))
            self._at(connection.up_s, lambda: self._refused(transfer, connection, error))

    def _reply(self, transfer: SimulatedTransfer, connection: Connection) -> None:
        assert connection.incoming is not None
        data = encode_reply(connection.incoming.reply(self._credit_bytes))
        for _ in range(self._copies()):
            connection.up_s = max(connection.up_s, self.now + self._delay(connection))
            self._at(connection.up_s, lambda: self._replied(transfer, connection, data))

    # Time.

    def _serve_line(self) -> None:
        """Whose turn the pair's credit makes it, tries again."""
        while (first := self.credit.next_in_line()) is not None:
            before = self.credit.in_flight_bytes
            self._pump(self.transfers[first])
            if (self.credit.in_flight_bytes, self.credit.next_in_line()) == (before, first):
                return

    def _watch_clocks(self) -> None:
        for transfer in self.transfers.values():
            try:
                transfer.queue.check(self.now)
            except PdspanError as error:
                self._end_sender(transfer, error)
            if transfer.incoming is not None:
                transfer.incoming.check(self.now)
                self._stir(transfer)
            self._wake_at(transfer.queue.deadline())
            self._wake_at(None if transfer.incoming is None else transfer.incoming.deadline())

    def _wake_at(self, deadline: float | None) -> None:
        """An event at the deadline, unless one is due before it anyway."""
        if deadline is not None and (not self._events or self._events[0][0] > deadline):
            self._at(deadline, lambda: None)

    def _delay(self, connection: Connection) -> float:
        delays = self._link.delays_s
        return delays[connection.stripe % len(delays)] + self._random.random() * self._link.jitter_s

    def _copies(self) -> int:
        return 2 if self._random.random() < self._link.duplicates else 1
