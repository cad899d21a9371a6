"""The clocks of each half of a transfer, and what is said when one runs out.

``resume_s`` bounds how long a transfer may be without a stream, ``stall_s`` how long nothing moves
though something could: the table "Time" of ``docs/wire-protocol.md``. The halves say what is the
case; ``now`` is an argument, nothing is scheduled.
"""

from kvtransfer.countdown import Countdown, first_of
from pdcore.errors import PdspanError, PeerUnavailable, TransferStalled
from pdcore.settings import TransferSettings


class SendClocks:
    def __init__(self, settings: TransferSettings) -> None:
        self._resume = Countdown(settings.resume_s)
        self._stall = Countdown(settings.stall_s)

    def run(self, *, is_cut: bool, could_move: bool, now: float) -> None:
        """``is_cut``: no stream is live. ``could_move``: something of this transfer could."""
        self._resume.run(is_cut, now)
        self._stall.run(could_move, now)

    def moved(self, now: float) -> None:
        """A frame was acknowledged."""
        self._stall.restart(now)

    def deadline(self) -> float | None:
        return first_of(self._resume, self._stall)

    def check(self, in_flight_bytes: int, now: float) -> None:
        """Raises PeerUnavailable or TransferStalled when a clock ran out."""
        if self._resume.ran_out(now):
            raise PeerUnavailable(
                f"no connection to the decode node for {self._resume.limit_s:g} s"
            )
        if self._stall.ran_out(now):
            raise TransferStalled(
                f"nothing was acknowledged for {self._stall.limit_s:g} s"
                f" ({in_flight_bytes} bytes in flight)"
            )


class ReceiveClocks:
    def __init__(self, settings: TransferSettings) -> None:
        self._resume = Countdown(settings.resume_s)
        self._stall = Countdown(settings.stall_s)

    def run_resume(self, is_cut: bool, now: float) -> None:
        """``is_cut``: no stream is open, and one was."""
        self._resume.run(is_cut, now)

    def run_stall(self, now: float) -> None:
        """The handoff is here: from now on pages are only late."""
        self._stall.run(True, now)

    def moved(self, now: float) -> None:
        """A page arrived."""
        self._stall.restart(now)

    def deadline(self) -> float | None:
        return first_of(self._resume, self._stall)

    def problem(self, num_missing: int, now: float) -> PdspanError | None:
        """What a clock that ran out means. ``num_missing`` counts layers of pages."""
        if self._resume.ran_out(now):
            return PeerUnavailable(
                "the connection to the prefill node broke in mid-transfer and did not come"
                f" back within {self._resume.limit_s:g} s"
            )
        if self._stall.ran_out(now):
            return TransferStalled(
                f"no page arrived for {self._stall.limit_s:g} s after the handoff;"
                f" {num_missing} layers of pages are missing"
            )
        return None
