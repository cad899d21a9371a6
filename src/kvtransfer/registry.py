"""All transfers that one receiver knows of, by id: parked, announced, over. No I/O, no clock.

``Push`` may overtake ``Generate``: streams of an unknown id are parked, a bounded number for each
peer and over all, and join when the id is announced. Ids that are over are remembered (a bounded
number), so what still comes for them is answered: a commit again, a failure by name. An id is used
once.
"""

from kvtransfer.handshake import check_name, check_opening
from kvtransfer.incoming import IncomingTransfer, TransferState
from kvtransfer.incoming_stream import IncomingStream, StreamState, check_attempt
from kvtransfer.messages import Identity, Opening, Push
from kvtransfer.pages import PageSink, TransferTarget
from pdcore.errors import PdspanError, ProtocolViolation, TransferFailed, UnknownTransfer
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout
from pdcore.settings import TransferSettings

MAX_PARKED = 1024  # streams of all peers together: each of them says itself who it is
MAX_REMEMBERED = 4096


class TransferRegistry:
    def __init__(
        self, identity: Identity, layout: KvLayout, sink: PageSink, settings: TransferSettings
    ) -> None:
        self._identity = identity
        self._layout = layout
        self._sink = sink
        self._settings = settings
        self._parked: dict[TransferId, list[IncomingStream]] = {}
        self._transfers: dict[TransferId, IncomingTransfer] = {}  # announced, owner still there
        # Why it failed (None: committed), oldest first. Words only: an error holds its traceback,
        # and that the payload.
        self._over: dict[TransferId, str | None] = {}

    @property
    def num_parked(self) -> int:
        """Streams that wait for their ``Generate``."""
        return sum(len(streams) for streams in self._parked.values())

    def state(self, transfer_id: TransferId) -> TransferState:
        """The column of the state table that the id is in."""
        transfer = self._transfers.get(transfer_id)
        if transfer is not None:
            return transfer.state
        if transfer_id in self._over:
            failed = self._over[transfer_id] is not None
            return TransferState.FAILED if failed else TransferState.DONE
        return TransferState.PARKED if transfer_id in self._parked else TransferState.UNKNOWN

    def transfer(self, transfer_id: TransferId) -> IncomingTransfer | None:
        """The announced transfer of that id whose owner has not left."""
        return self._transfers.get(transfer_id)

    def expect(
        self, transfer_id: TransferId, target: TransferTarget, now: float
    ) -> IncomingTransfer:
        """Announce a transfer; parked streams join. Raises ProtocolViolation for a used id."""
        if transfer_id in self._transfers or transfer_id in self._over:
            raise ProtocolViolation(f"transfer {transfer_id} was announced before")
        transfer = IncomingTransfer(transfer_id, target, self._layout, self._sink, self._settings)
        self._transfers[transfer_id] = transfer
        for stream in self._parked.pop(transfer_id, []):
            self._admit(transfer, stream, now)
        return transfer

    def leave(self, transfer: IncomingTransfer) -> None:
        """The owner leaves; the id is over. Safe to repeat."""
        transfer.leave()
        if self._transfers.pop(transfer.transfer_id, None) is not None:
            self._over[transfer.transfer_id] = _reason(transfer)
            if len(self._over) > MAX_REMEMBERED:
                del self._over[next(iter(self._over))]

    def open(self, push: Push, now: float) -> IncomingStream:
        """The first message of a stream; the stream's state says what becomes of it.

        Raises what refuses the stream. It changes no transfer then.
        """
        if not isinstance(push.body, Opening):
            raise ProtocolViolation(
                f"a stream begins with {type(push.body).__name__}, not with its opening"
            )
        check_name("the transfer's id", push.transfer_id)
        check_opening(push.body, self._identity, self._layout)
        stream = IncomingStream(push.transfer_id, push.attempt, push.body)
        transfer = self._transfers.get(push.transfer_id)
        if transfer is not None:
            self._admit(transfer, stream, now)
        elif push.transfer_id in self._over:
            _answer(stream, self._over[push.transfer_id])
        else:
            self._park(stream)
        if stream.state is StreamState.ENDED and stream.error is not None:
            raise stream.error
        return stream

    def receive(self, stream: IncomingStream, push: Push, now: float) -> None:
        """A later message. For a transfer that is over it is dropped."""
        transfer = self._transfers.get(stream.transfer_id)
        if transfer is not None:
            transfer.receive(stream, push, now)

    def fail(self, stream: IncomingStream, error: PdspanError) -> None:
        """What came on an open stream was no message: its transfer fails."""
        transfer = self._transfers.get(stream.transfer_id)
        if transfer is not None and stream.is_open:
            transfer.fail(error)

    def broken(self, stream: IncomingStream, now: float) -> None:
        """The stream is gone, for whatever reason. Safe to repeat."""
        self._unpark(stream)
        transfer = self._transfers.get(stream.transfer_id)
        if transfer is not None:
            transfer.broken(stream, now)

    def park_ran_out(self, stream: IncomingStream) -> None:
        """``park_s`` passed: a stream that is still parked ends."""
        if stream.state is StreamState.PARKED:
            self._unpark(stream)
            stream.end(
                UnknownTransfer(
                    f"no request announced transfer {stream.transfer_id} to"
                    f" {self._identity.node} within {self._settings.park_s:g} s"
                )
            )

    def _admit(self, transfer: IncomingTransfer, stream: IncomingStream, now: float) -> None:
        if transfer.is_over:
            _answer(stream, _reason(transfer))
            return
        try:
            transfer.join(stream, now)
        except ProtocolViolation as error:
            stream.end(error)

    def _park(self, stream: IncomingStream) -> None:
        peer = stream.opening.sender.node
        parked = [other for streams in self._parked.values() for other in streams]
        num_of_peer = sum(other.opening.sender.node == peer for other in parked)
        if num_of_peer >= self._settings.park_streams:
            raise _no_room_to_park(stream, num_of_peer, peer)
        if len(parked) >= MAX_PARKED:
            raise _no_room_to_park(stream, len(parked), "all peers")
        streams = self._parked.setdefault(stream.transfer_id, [])
        attempts = (other.attempt for other in streams if other.stripe == stream.stripe)
        check_attempt(stream, max(attempts, default=None))
        streams.append(stream)

    def _unpark(self, stream: IncomingStream) -> None:
        streams = self._parked.get(stream.transfer_id, [])
        if stream in streams:
            streams.remove(stream)
        if not streams:
            self._parked.pop(stream.transfer_id, None)


def _no_room_to_park(stream: IncomingStream, num_parked: int, whose: str) -> UnknownTransfer:
    return UnknownTransfer(
        f"transfer {stream.transfer_id} is not announced yet, and {num_parked} streams of {whose}"
        " wait already"
    )


def _reason(transfer: IncomingTransfer) -> str | None:
    return None if transfer.error is None else str(transfer.error)


def _answer(stream: IncomingStream, reason: str | None) -> None:
    """A stream of a transfer that is over: the commit again, or the failure by name."""
    if reason is None:
        stream.commit()
    else:
        stream.end(TransferFailed(f"transfer {stream.transfer_id} is over: {reason}"))
