"""Credit: the bytes that all transfers of one pair together may have in flight.

A standing bound, set by the receiver, never used up. Invariant: ``in_flight_bytes`` is the sum of
what the transfers have taken and not given back, and exceeds the grant only by a frame that went
alone or while a lowered grant drains. Transfers that found no room are served in the order in which
they asked, one frame each, so none starves. Counts bytes only; waking a transfer is the caller's.
"""

from pdcore.generation import TransferId


class Credit:
    def __init__(self, granted_bytes: int = 0) -> None:
        self._granted_bytes = granted_bytes
        self._in_flight_bytes = 0
        self._waiting: dict[TransferId, None] = {}  # in the order of asking

    @property
    def granted_bytes(self) -> int:
        return self._granted_bytes

    @property
    def in_flight_bytes(self) -> int:
        return self._in_flight_bytes

    def grant(self, nbytes: int) -> None:
        """The receiver's standing credit is now ``nbytes``."""
        self._granted_bytes = nbytes

    def take(self, transfer: TransferId, nbytes: int, window_bytes: int | None = None) -> bool:
        """Take room for one frame; without room, or out of turn, ``transfer`` waits in line.

        ``window_bytes``: a bound on the pair's bytes in flight that the sender sets itself.
        """
        first = next(iter(self._waiting), transfer)
        if first != transfer or not self._has_room(nbytes, window_bytes):
            self._waiting.setdefault(transfer)
            return False
        self._waiting.pop(transfer, None)
        self._in_flight_bytes += nbytes
        return True

    def give_back(self, nbytes: int) -> None:
        assert nbytes <= self._in_flight_bytes, "more credit given back than was taken"
        self._in_flight_bytes -= nbytes

    def leave_line(self, transfer: TransferId) -> None:
        """``transfer`` does not want to send now: the next in line is not to wait for it."""
        self._waiting.pop(transfer, None)

    def waits(self, transfer: TransferId) -> bool:
        return transfer in self._waiting

    def next_in_line(self) -> TransferId | None:
        """Who is to try again after credit came back or the line moved."""
        return next(iter(self._waiting), None)

    def _has_room(self, nbytes: int, window_bytes: int | None) -> bool:
        bound = self._granted_bytes
        if window_bytes is not None:
            bound = min(bound, window_bytes)
        fits = self._in_flight_bytes + nbytes <= bound
        return fits or (self._in_flight_bytes == 0 and self._granted_bytes > 0)
