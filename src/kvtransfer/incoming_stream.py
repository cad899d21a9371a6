"""One ``Push`` stream as its receiver sees it: its opening, what it acknowledged, how it ended."""

from enum import StrEnum

from kvtransfer.handshake import check_name
from kvtransfer.messages import Opening, Push, Reply
from pdcore.errors import PdspanError, ProtocolViolation
from pdcore.generation import TransferId


class StreamState(StrEnum):
    PARKED = "parked"  # Push came before Generate
    OPEN = "open"
    COMMITTED = "committed"
    ENDED = "ended"  # with ``error``


class IncomingStream:
    def __init__(self, transfer_id: TransferId, attempt: int, opening: Opening) -> None:
        self.transfer_id = transfer_id
        self.attempt = attempt
        self.opening = opening
        self.state = StreamState.PARKED
        self.error: PdspanError | None = None
        self.num_frames = 0
        self.num_bytes = 0
        self.busy_s = 0.0  # spent on its frames

    @property
    def stripe(self) -> int:
        return self.opening.stripe

    @property
    def is_open(self) -> bool:
        return self.state is StreamState.OPEN

    def open(self) -> None:
        self.state = StreamState.OPEN

    def acknowledge(self, nbytes: int) -> None:
        """The next frame is verified and in its pages."""
        self.num_frames += 1
        self.num_bytes += nbytes

    def commit(self) -> None:
        self.state = StreamState.COMMITTED

    def end(self, error: PdspanError) -> None:
        self.state = StreamState.ENDED
        self.error = error

    def reply(self, credit_bytes: int) -> Reply:
        committed = self.state is StreamState.COMMITTED
        return Reply(
            self.attempt, self.num_frames, self.num_bytes, credit_bytes, committed, self.busy_s
        )


def check_attempt(stream: IncomingStream, newest: int | None) -> None:
    """Raises ProtocolViolation unless ``stream`` is a newer attempt than its stripe's newest."""
    if newest is not None and stream.attempt <= newest:
        raise ProtocolViolation(
            f"attempt {stream.attempt} of stripe {stream.stripe} opened after attempt {newest}"
        )


def check_belongs(push: Push, stream: IncomingStream) -> None:
    """Raises ProtocolViolation unless ``push`` names what ``stream`` was opened for."""
    check_name("the transfer's id", push.transfer_id)
    if (push.transfer_id, push.attempt) != (stream.transfer_id, stream.attempt):
        raise ProtocolViolation(
            f"attempt {push.attempt} of {push.transfer_id} on a stream that was opened for attempt"
            f" {stream.attempt} of {stream.transfer_id}"
        )
