"""The receiver's half of one transfer: frames in, pages written, a commit. No I/O, no clock.

Invariants: committed exactly when the handoff and every layer of every page have arrived and were
verified; after it is over, nothing is written. A failure becomes the transfer's ``error`` and ends
its streams; only a defect is raised, too. ``docs/wire-protocol.md`` has the state table; ids that
have no transfer yet, or none any more, are in ``kvtransfer.registry``.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

from kvtransfer.clocks import ReceiveClocks
from kvtransfer.framing import checksum
from kvtransfer.incoming_stream import IncomingStream, check_attempt, check_belongs
from kvtransfer.messages import Extent, Frame, Handoff, Identity, Opening, Push
from kvtransfer.pages import PageSink, TransferTarget
from kvtransfer.reassembly import Reassembly
from pdcore.errors import (
    ChecksumMismatch,
    PdspanError,
    PeerUnavailable,
    ProtocolViolation,
    TransferFailed,
    unexpected,
)
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout
from pdcore.settings import TransferSettings


class TransferState(StrEnum):
    UNKNOWN = "unknown"  # this one and PARKED: the id has no IncomingTransfer yet
    PARKED = "parked"
    EXPECTED = "expected"
    RECEIVING = "receiving"
    COMMITTED = "committed"
    FAILED = "failed"
    DONE = "done"  # the owner left after the commit


_OVER = (TransferState.COMMITTED, TransferState.FAILED, TransferState.DONE)


class IncomingTransfer:
    """A transfer that its owner (``Generate``) has announced."""

    def __init__(
        self,
        transfer_id: TransferId,
        target: TransferTarget,
        layout: KvLayout,
        sink: PageSink,
        settings: TransferSettings,
    ) -> None:
        self.transfer_id = transfer_id
        self.state = TransferState.EXPECTED
        self.error: PdspanError | None = None
        self.handoff: Handoff | None = None
        self.streams: list[IncomingStream] = []
        self._target = target
        self._layout = layout
        self._sink = sink
        self._settings = settings
        self._num_pages = layout.num_pages(target.num_tokens)
        self._pages: Sequence[int] = ()
        self._reassembly = Reassembly(self._num_pages, layout)
        self._sender: Identity | None = None
        self._extent: Extent | None = None
        self._newest_attempts: dict[int, int] = {}  # by stripe
        self._clocks = ReceiveClocks(settings)

    @property
    def is_over(self) -> bool:
        return self.state in _OVER

    def join(self, stream: IncomingStream, now: float) -> None:
        """``stream`` takes part; the first one turns the promise into pages.

        Raises ProtocolViolation for another sender than the first, and for an attempt that is not
        newer than the stripe's; that concerns the stream alone. An extent that is not the announced
        one fails the transfer.
        """
        assert not self.is_over, "the registry answers for transfers that are over"
        self._check_sender(stream.opening.sender)
        check_attempt(stream, self._newest_attempts.get(stream.stripe))
        stream.open()
        self.streams.append(stream)
        if not self._agrees(stream.opening.extent):
            self.fail(self._disagreement(stream.opening))
            return
        if self.state is TransferState.EXPECTED:
            with self._failing():
                self._open(stream.opening)
        self._supersede(stream)
        self._clocks.run_resume(False, now)

    def receive(self, stream: IncomingStream, push: Push, now: float) -> None:
        """A message on an open stream. On a stream that is not open it is dropped."""
        if not stream.is_open:
            return
        with self._failing():
            check_belongs(push, stream)
            self._take(stream, push, now)

    def broken(self, stream: IncomingStream, now: float) -> None:
        """The stream is gone. That alone ends nothing."""
        if stream in self.streams:
            self.streams.remove(stream)
        if stream.is_open:
            stream.end(PeerUnavailable("the stream broke"))
        self._clocks.run_resume(not self._open_streams(), now)

    def fail(self, error: PdspanError) -> None:
        """Nothing of the transfer will be used; its streams end with ``error``."""
        if self.is_over:
            return
        self.state = TransferState.FAILED
        self.error = error
        for stream in self._open_streams():
            stream.end(error)
        self._forget_pages()

    def leave(self) -> None:
        """The owner leaves: from here on nothing touches its pages. Safe to repeat."""
        self.fail(TransferFailed("the decode node gave up this transfer"))
        if self.state is TransferState.COMMITTED:
            self.state = TransferState.DONE
        self._forget_pages()

    def deadline(self) -> float | None:
        """When ``check`` has something to say, if nothing happens until then."""
        return None if self.is_over else self._clocks.deadline()

    def check(self, now: float) -> None:
        """Fail the transfer when one of its clocks ran out."""
        problem = self._clocks.problem(self._reassembly.num_missing, now)
        if problem is not None:
            self.fail(problem)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """An error fails the transfer, so that its owner knows at once; a defect is raised too."""
        try:
            yield
        except PdspanError as error:
            self.fail(error)
        except Exception as error:
            self.fail(unexpected(error))
            raise

    def _open_streams(self) -> list[IncomingStream]:
        return [stream for stream in self.streams if stream.is_open]

    def _supersede(self, newest: IncomingStream) -> None:
        self._newest_attempts[newest.stripe] = newest.attempt
        for stream in self._open_streams():
            if stream.stripe == newest.stripe and stream is not newest:
                stream.end(TransferFailed(f"superseded by attempt {newest.attempt}"))

    def _check_sender(self, sender: Identity) -> None:
        if self._sender not in (None, sender):
            raise ProtocolViolation(
                f"{sender.node} (epoch {sender.epoch:x}) sends transfer {self.transfer_id}, which"
                " another sender has opened"
            )

    def _agrees(self, extent: Extent) -> bool:
        if extent.num_tokens != self._target.num_tokens:
            return False
        return self._extent is None or extent == self._extent

    def _disagreement(self, opening: Opening) -> ProtocolViolation:
        expected = self._extent or f"{self._target.num_tokens} tokens"
        return ProtocolViolation(
            f"{opening.sender.node} opens {opening.extent}, expected: {expected}"
        )

    def _open(self, opening: Opening) -> None:
        self._sender, self._extent = opening.sender, opening.extent
        self._pages = self._target.open(self._num_pages)[: self._num_pages]
        assert len(self._pages) == self._num_pages, "the promise covers the prompt"
        self.state = TransferState.RECEIVING

    def _take(self, stream: IncomingStream, push: Push, now: float) -> None:
        match push.body:
            case Opening():
                raise ProtocolViolation("a second opening on one stream")
            case Frame():
                self._take_frame(stream, push.body, push.payload, now)
            case Handoff():
                self._take_handoff(push.body, now)
        if self.handoff is not None and self._reassembly.is_complete:
            self._commit()

    def _take_frame(
        self, stream: IncomingStream, frame: Frame, payload: memoryview, now: float
    ) -> None:
        if frame.sequence < stream.num_frames:
            return
        if frame.sequence > stream.num_frames:
            raise ProtocolViolation(f"frame {frame.sequence} came after {stream.num_frames} frames")
        self._reassembly.check(frame.runs, len(payload))
        if checksum((payload,)) != frame.checksum:
            raise ChecksumMismatch(
                f"frame {frame.sequence} of stripe {stream.stripe} ({len(payload)} bytes) arrived"
                " with another checksum than it was sent with"
            )
        if self._place(frame, payload):
            self._clocks.moved(now)
        stream.acknowledge(len(payload))

    def _place(self, frame: Frame, payload: memoryview) -> bool:
        """Write the runs that hold something new; says whether there was one."""
        is_new, start = False, 0
        for run in frame.runs:
            end = start + run.num_parts * self._layout.layer_bytes
            if self._reassembly.add(run):
                pages = self._pages[run.first_page : run.first_page + run.num_pages]
                self._sink.write(pages, run.first_layer, run.num_layers, payload[start:end])
                is_new = True
            start = end
        return is_new

    def _take_handoff(self, handoff: Handoff, now: float) -> None:
        page_bytes = self._num_pages * self._layout.page_bytes
        if handoff.page_bytes != page_bytes or not handoff.first_token_ids:
            raise ProtocolViolation(
                f"the handoff has {len(handoff.first_token_ids)} first tokens and counts"
                f" {handoff.page_bytes} bytes of pages; the transfer has {page_bytes}"
            )
        if handoff.cached_tokens > self._target.num_tokens:
            raise ProtocolViolation(
                f"the handoff counts {handoff.cached_tokens} cached tokens of a prompt of"
                f" {self._target.num_tokens}"
            )
        if self.handoff not in (None, handoff):
            raise ProtocolViolation("two handoffs that differ")
        self.handoff = handoff
        self._clocks.run_stall(now)

    def _commit(self) -> None:
        self.state = TransferState.COMMITTED
        for stream in self._open_streams():
            stream.commit()
        self._forget_pages()

    def _forget_pages(self) -> None:
        self._pages = ()
