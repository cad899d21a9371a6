"""Where a sender's time went: seconds in four exclusive states.

At any moment a transfer is in exactly one state, so the four shares add up to its duration. With
several stripes the transfer is in the busiest state of any of them (preparing, then waiting for the
transport); only when no stripe is busy does it wait for acknowledgements or for the producer.
No clock reads: every change comes with ``now``. What the shares mean is ``kvtransfer.verdict``'s.
"""

from enum import StrEnum


class SendState(StrEnum):
    PRODUCER = "producer"  # waiting for pages to be computed
    PREPARE = "prepare"  # gathering, checksumming, framing
    WINDOW = "window"  # waiting for acknowledgements: window or credit is full, or all is sent
    TRANSPORT = "transport"  # waiting for the transport to take bytes, or for a connection


class Accounting:
    """Starts with the first page that is ready; nothing before that is counted."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(SendState, 0.0)
        self._busy: dict[int, SendState] = {}
        self._idle = SendState.PRODUCER
        self._since_s: float | None = None
        self.started_s: float | None = None

    @property
    def state(self) -> SendState:
        busy = self._busy.values()
        if SendState.PREPARE in busy:
            return SendState.PREPARE
        return SendState.TRANSPORT if busy else self._idle

    def start(self, now: float) -> None:
        """The first page may leave. Later calls change nothing."""
        if self._since_s is None:
            self.started_s = self._since_s = now

    def busy(self, stripe: int, state: SendState, now: float) -> None:
        """``stripe`` is in PREPARE or TRANSPORT from now on."""
        self._charge(now)
        self._busy[stripe] = state

    def idle(self, stripe: int, now: float) -> None:
        self._charge(now)
        self._busy.pop(stripe, None)

    def waits_for(self, state: SendState, now: float) -> None:
        """What a transfer none of whose stripes is busy waits for, from now on."""
        self._charge(now)
        self._idle = state

    def seconds(self, now: float) -> dict[SendState, float]:
        """The four shares up to ``now``."""
        self._charge(now)
        return dict(self._seconds)

    def _charge(self, now: float) -> None:
        if self._since_s is None:
            return
        self._seconds[self.state] += now - self._since_s
        self._since_s = now
