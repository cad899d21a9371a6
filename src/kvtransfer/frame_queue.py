"""The sender's half of one transfer: ready pages in, frames out. No I/O; ``now`` is an argument.

Invariants: every layer of every page is unsent, in flight on exactly one stripe, or acknowledged;
what is in flight fits (``flight``); the handoff leaves when nothing is unsent.
``docs/wire-protocol.md`` has the state table.
Does not wait, write or read pages: its caller does, and asks again after every change.
"""

from enum import StrEnum

from kvtransfer.accounting import Accounting, SendState
from kvtransfer.clocks import SendClocks
from kvtransfer.credit import Credit
from kvtransfer.flight import Flight
from kvtransfer.limits import SendLimits
from kvtransfer.messages import Handoff, PageRun, Reply
from kvtransfer.path import PathEstimator
from kvtransfer.send_record import SendRecord
from kvtransfer.send_stripe import OutgoingFrame, SendStripe
from kvtransfer.send_stripes import SendStripes
from kvtransfer.stripe_policy import StripePolicy
from kvtransfer.unsent_pages import UnsentPages
from kvtransfer.window import WindowController
from pdcore.errors import ProtocolViolation
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout
from pdcore.settings import TransferSettings


class SenderState(StrEnum):
    SENDING = "sending"
    HANDED_OFF = "handed_off"  # the handoff left at least once
    COMMITTED = "committed"
    CLOSED = "closed"


class FrameQueue:
    """``stripe`` arguments are indices below ``max_stripes``; a stripe has one stream at a time.

    ``num_stripes`` says how many are to have one now; it may grow and shrink until the commit, and
    a stripe beyond it that has a stream keeps it.
    """

    def __init__(
        self,
        transfer_id: TransferId,
        layout: KvLayout,
        *,
        num_pages: int,
        limits: SendLimits,
        window: WindowController,
        credit: Credit,
        path: PathEstimator,
        stripes: StripePolicy,
        settings: TransferSettings,
    ) -> None:
        assert num_pages > 0, "a prompt has at least one token"
        self.state = SenderState.SENDING
        self.accounting = Accounting()
        self.record = SendRecord(transfer_id, path.rate_bytes_per_s)
        self.num_frames = 0
        self.wire_bytes = 0
        self.round_trips = 0
        self.page_bytes = num_pages * layout.page_bytes  # of all pages, once each
        self._credit = credit
        self._flight = Flight(transfer_id, window, credit, path)
        self._clocks = SendClocks(settings)
        self._unsent = UnsentPages(num_pages, limits, layout, path)
        self._handoff: Handoff | None = None
        self._next_round_trip = 1
        self._stripes = SendStripes(limits, limits.stripes_for(num_pages, layout), stripes)

    @property
    def max_stripes(self) -> int:
        """The most that the transfer may come to use, fixed from its opening on."""
        return self._stripes.max_num

    @property
    def num_stripes(self) -> int:
        return self._stripes.num

    @property
    def num_opened(self) -> int:
        """Stripes that have had a stream."""
        return self._stripes.num_opened

    @property
    def num_attempts(self) -> int:
        return self._stripes.num_attempts

    @property
    def in_flight_bytes(self) -> int:
        return self._flight.nbytes

    @property
    def max_in_flight_bytes(self) -> int:
        return self._flight.max_nbytes

    @property
    def window_bytes(self) -> int:
        """In force now: 0 for one frame at a time."""
        return self._flight.window_bytes

    @property
    def is_over(self) -> bool:
        return self.state in (SenderState.COMMITTED, SenderState.CLOSED)

    def pages_ready(self, num_pages: int, now: float) -> None:
        """Pages [0, num_pages) are final. Repeats and smaller numbers change nothing.

        The transfer's time runs from when its mode lets the first page leave.
        """
        if not self.is_over and self._unsent.ready(num_pages):
            self.record.pages_ready(num_pages, now)
            if self._has_next():
                self.accounting.start(now)
            self._settle(now)

    def hand_off(self, first_token_ids: tuple[int, ...], cached_tokens: int, now: float) -> None:
        """What follows the last page; every page is ready."""
        if self.is_over:
            return
        assert self._unsent.all_ready, "the handoff comes after the last page"
        assert self._handoff is None, "one handoff a transfer"
        self._handoff = Handoff(first_token_ids, cached_tokens, self.page_bytes)
        self.record.handed_off(now)
        self._settle(now)

    def open_stream(self, stripe: int, now: float) -> int:
        """A stream of ``stripe`` is about to open; the attempt that it carries."""
        attempt = self._stripes.open(stripe)
        self.record.note("opened", now, stripe=stripe, attempt=attempt)
        self._settle(now)
        return attempt

    def next_message(self, stripe: int, now: float) -> OutgoingFrame | Handoff | None:
        """What ``stripe`` sends next, counted as in flight from now on; None: not now."""
        if self.is_over or not self._stripes[stripe].is_open:
            return None
        message = self._next_frame(stripe, now) or self._next_handoff(self._stripes[stripe])
        if isinstance(message, OutgoingFrame):
            self.record.sent(stripe, message, self.in_flight_bytes, now)
        self._settle(now)
        return message

    def on_reply(self, stripe: int, reply: Reply, now: float) -> None:
        """Raises ProtocolViolation for what the receiver cannot truly say."""
        lane = self._stripes[stripe]
        if self.is_over or not lane.is_open or reply.attempt < lane.attempt:
            return
        was_blocked = self._is_blocked()
        for frame in lane.acknowledge(reply):
            self._acknowledged(frame, was_blocked, now)
            self.record.acknowledged(stripe, frame, self.in_flight_bytes, now)
        self.record.receiver_was_busy(stripe, reply)
        lane.is_heard = True
        self._credit.grant(reply.credit_bytes)
        if reply.committed:
            self._commit()
            self.record.note("committed", now)
        self._settle(now)

    def on_broken(self, stripe: int, now: float) -> bool:
        """The stream of ``stripe`` is gone; what it had not acknowledged goes back in front.

        Says whether that stream had been answered.
        """
        if self.is_over:
            return False
        self.record.note("broken", now, stripe=stripe)
        was_heard = self._stripes[stripe].is_heard
        frames = self._stripes[stripe].close()
        self._flight.withdrawn(sum(frame.nbytes for frame in frames), len(frames))
        self._unsent.put_back(frame.run for frame in frames)
        self._flight.leave_line()
        self._settle(now)
        return was_heard

    def close(self) -> None:
        """The owner leaves, for whatever reason. Safe to repeat."""
        self._release_all()
        self.state = SenderState.CLOSED

    def deadline(self) -> float | None:
        """When ``check`` has something to say, if nothing happens until then."""
        return None if self.is_over else self._clocks.deadline()

    def check(self, now: float) -> None:
        """Raises PeerUnavailable or TransferStalled when a clock ran out."""
        if not self.is_over:
            self._clocks.check(self.in_flight_bytes, now)

    def _next_frame(self, stripe: int, now: float) -> OutgoingFrame | None:
        run = self._next_run()
        if run is None:
            self._flight.nothing_to_send(now)
            return None
        nbytes = self._unsent.nbytes(run)
        if not self._stripes.may_take(stripe, nbytes, self.window_bytes):
            return None
        if not self._flight.admits(nbytes):
            return None
        self._unsent.take(run)
        return self._sent(self._stripes[stripe], run, now)

    def _next_run(self) -> PageRun | None:
        is_idle = not self.in_flight_bytes
        return self._unsent.peek(num_stripes=self.num_stripes, is_idle=is_idle)

    def _has_next(self) -> bool:
        """Whether there is a next run. Asked after every change, so it does not cut one if it can
        tell without."""
        if self._unsent.all_ready:
            return not self._unsent.is_empty
        return self._next_run() is not None

    def _is_blocked(self) -> bool:
        """Whether a frame is ready, and window or credit has no room for it."""
        if self._flight.waits_in_line:
            return self._has_next()
        run = None if self._flight.is_shared else self._next_run()
        return run is not None and not self._flight.fits(self._unsent.nbytes(run))

    def _sent(self, lane: SendStripe, run: PageRun, now: float) -> OutgoingFrame:
        nbytes = self._unsent.nbytes(run)
        mark = self._flight.sent(nbytes, now)
        frame = lane.send(run, nbytes, self._next_round_trip, mark)
        self.num_frames += 1
        self.wire_bytes += frame.nbytes
        self.round_trips = max(self.round_trips, frame.round_trip)
        return frame

    def _next_handoff(self, lane: SendStripe) -> Handoff | None:
        is_due = self._unsent.is_empty and self._handoff is not None
        if not is_due or self._stripes.has_handoff:
            return None
        lane.has_handoff = True
        self.state = SenderState.HANDED_OFF
        return self._handoff

    def _acknowledged(self, frame: OutgoingFrame, was_blocked: bool, now: float) -> None:
        self._flight.acknowledged(frame.mark, frame.nbytes, now)
        self._clocks.moved(now)
        if was_blocked:  # what leaves next could leave only because of this one
            self._next_round_trip = max(self._next_round_trip, frame.round_trip + 1)

    def _commit(self) -> None:
        if self.state is not SenderState.HANDED_OFF:
            raise ProtocolViolation("the receiver committed before the handoff was sent")
        self._release_all()
        self.state = SenderState.COMMITTED

    def _release_all(self) -> None:
        self._flight.withdrawn(*self._stripes.close())
        self._flight.leave_line()

    def _settle(self, now: float) -> None:
        """After every change: what the transfer waits for now, and which clocks run."""
        has_next = self._has_next()
        self.accounting.waits_for(self._waits_for(has_next), now)
        self.record.changed(self.accounting.state, self.window_bytes, now)
        has_work = has_next or self.in_flight_bytes > 0 or self._handoff is not None
        waits_in_line = not self.in_flight_bytes and self._flight.waits_in_line
        self._clocks.run(
            is_cut=self._stripes.is_cut, could_move=has_work and not waits_in_line, now=now
        )

    def _waits_for(self, has_next: bool) -> SendState:
        if not self._stripes.is_open:
            return SendState.TRANSPORT
        if has_next or self._handoff is not None:
            return SendState.WINDOW
        return SendState.PRODUCER
