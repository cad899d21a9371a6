"""What one transfer has unacknowledged, and whether another frame may leave: its window, and the
pair's credit and path, which it shares with the pair's other transfers.

Invariant: what it has taken of the credit, and told the path to be in flight, is ``nbytes``.
"""

from kvtransfer.credit import Credit
from kvtransfer.delivery_rate import Mark
from kvtransfer.path import PathEstimator
from kvtransfer.window import WindowController
from pdcore.generation import TransferId


class Flight:
    def __init__(
        self,
        transfer_id: TransferId,
        window: WindowController,
        credit: Credit,
        path: PathEstimator,
    ) -> None:
        self.nbytes = 0
        self.max_nbytes = 0
        self._transfer_id = transfer_id
        self._window = window
        self._credit = credit
        self._path = path

    @property
    def window_bytes(self) -> int:
        """In force now: 0 for one frame at a time."""
        return min(self._window.window_bytes(), self._credit.granted_bytes)

    @property
    def is_shared(self) -> bool:
        """Whether the window is the pair's, not the transfer's own."""
        return self._window.is_shared

    @property
    def waits_in_line(self) -> bool:
        return self._credit.waits(self._transfer_id)

    def admits(self, nbytes: int) -> bool:
        """Take room for one frame. Without room in the transfer's own window leave the pair's line;
        without room in what is shared, wait in it."""
        if not self.fits(nbytes):
            self.leave_line()
            return False
        bound = self._window.window_bytes() if self.is_shared else None
        return self._credit.take(self._transfer_id, nbytes, bound)

    def fits(self, nbytes: int) -> bool:
        """In the transfer's own window; a shared one is the credit's matter."""
        if self.is_shared or not self.nbytes:
            return True
        return self.nbytes + nbytes <= self._window.window_bytes()

    def sent(self, nbytes: int, now: float) -> Mark:
        """An admitted frame leaves. A fixed window says nothing of how fast the path could be."""
        self.nbytes += nbytes
        self.max_nbytes = max(self.max_nbytes, self.nbytes)
        return self._path.sent(nbytes, is_limited=not self.is_shared, now=now)

    def acknowledged(self, mark: Mark, nbytes: int, now: float) -> None:
        self._give_back(nbytes)
        self._path.delivered(mark, nbytes, now=now)

    def withdrawn(self, nbytes: int, num_frames: int) -> None:
        """Frames of a stream that is gone."""
        self._give_back(nbytes)
        self._path.withdrawn(nbytes, num_frames)

    def nothing_to_send(self, now: float) -> None:
        """No page may leave, as far as the producer is concerned."""
        self.leave_line()
        is_filled = self._path.in_flight_bytes >= self._window.window_bytes()
        if not is_filled and self._credit.next_in_line() is None:
            self._path.nothing_to_send(now=now)

    def leave_line(self) -> None:
        self._credit.leave_line(self._transfer_id)

    def _give_back(self, nbytes: int) -> None:
        self.nbytes -= nbytes
        self._credit.give_back(nbytes)
