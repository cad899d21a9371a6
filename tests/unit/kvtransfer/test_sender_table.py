"""Walks the sender's state table of docs/wire-protocol.md, every event in every state."""

from collections.abc import Callable

import pytest

from kvtransfer.credit import Credit
from kvtransfer.frame_queue import FrameQueue
from kvtransfer.limits import limits_for
from kvtransfer.messages import Handoff, Reply
from kvtransfer.path import PathEstimator
from kvtransfer.stripe_policy import StripePolicy
from kvtransfer.window import window_for
from page_memory import TINY
from pdcore.errors import PdspanError, PeerUnavailable, ProtocolViolation, TransferStalled
from pdcore.generation import TransferId
from pdcore.settings import TransferSettings
from state_tables import Cell, cells

SETTINGS = TransferSettings(window_bytes=2 * TINY.page_bytes)
CREDIT_BYTES = 8 * TINY.page_bytes
NUM_PAGES = 3


class Half:
    """A sender with one stripe: page 0 is acknowledged, page 1 is in flight, page 2 is to come.

    The stream is its second attempt, so that there is an earlier one.
    """

    def __init__(self) -> None:
        self.credit = Credit(CREDIT_BYTES)
        path = PathEstimator()
        limits = limits_for("windowed", SETTINGS, TINY)
        self.queue = FrameQueue(
            TransferId("t"),
            TINY,
            num_pages=NUM_PAGES,
            limits=limits,
            window=window_for(limits, path),
            credit=self.credit,
            path=path,
            stripes=StripePolicy(path),
            settings=SETTINGS,
        )
        self.num_acked = 0
        self.error: PdspanError | None = None

    def start(self) -> None:
        self.queue.open_stream(0, 0.0)
        self.queue.on_broken(0, 0.0)
        self.queue.open_stream(0, 0.0)

    def send_pages(self) -> None:
        """All pages are ready; two leave, the first one is acknowledged."""
        self.queue.pages_ready(NUM_PAGES, 0.0)
        self.pull()
        self.pull()
        self.ack(1)

    def pull(self) -> object:
        return self.queue.next_message(0, 1.0)

    def reply(self, frames: int, nbytes: int, attempt: int = 1, committed: bool = False) -> None:
        self.queue.on_reply(0, Reply(attempt, frames, nbytes, CREDIT_BYTES, committed), 1.0)

    def ack(self, num_frames: int) -> None:
        self.num_acked += num_frames
        self.reply(self.num_acked, self.num_acked * TINY.page_bytes)

    def check(self, now: float) -> None:
        try:
            self.queue.check(now)
        except (PeerUnavailable, TransferStalled) as error:
            self.error = error
            self.queue.close()

    def snapshot(self) -> tuple[object, ...]:
        queue = self.queue
        return (queue.state, queue.in_flight_bytes, queue.num_frames, self.credit.in_flight_bytes)


def sending(*, all_ready: bool) -> Half:
    half = Half()
    half.start()
    if all_ready:
        half.send_pages()
    else:
        half.queue.pages_ready(2, 0.0)
    return half


def handed_off() -> Half:
    half = sending(all_ready=True)
    half.queue.hand_off((7,), 0, 1.0)
    assert half.pull() is not None  # the last page
    assert isinstance(half.pull(), Handoff)
    return half


def committed() -> Half:
    half = handed_off()
    half.reply(3, 3 * TINY.page_bytes, committed=True)
    return half


def closed() -> Half:
    half = handed_off()
    half.queue.close()
    return half


def in_state(state: str, event: str) -> Half:
    if state == "sending":
        return sending(all_ready="missing" not in event and not event.startswith("pages ready"))
    return {"handed_off": handed_off, "committed": committed, "closed": closed}[state]()


def give_handoff(half: Half) -> None:
    half.queue.hand_off((7,), 0, 1.0)


def pull_handoff(half: Half) -> None:
    """Make the handoff the next message where that can be, then ask for a message."""
    if half.queue.state == "sending":
        give_handoff(half)
        assert not isinstance(half.pull(), Handoff)
    half.pull()


def ack_again(half: Half) -> None:
    half.reply(1, TINY.page_bytes)
    half.reply(1, TINY.page_bytes)


def break_twice(half: Half) -> None:
    half.queue.on_broken(0, 1.0)
    before = half.snapshot()
    half.queue.on_broken(0, 1.0)
    assert half.snapshot() == before


def no_live_stream(half: Half) -> None:
    half.queue.on_broken(0, 1.0)
    half.check(1.0 + SETTINGS.resume_s - 0.001)
    assert half.error is None
    half.check(1.0 + SETTINGS.resume_s)
    assert isinstance(half.error, PeerUnavailable) or half.queue.state in ("committed", "closed")


def no_acknowledgement(half: Half) -> None:
    half.check(SETTINGS.stall_s + 0.999)
    assert half.error is None
    half.check(SETTINGS.stall_s + 1.0)
    assert isinstance(half.error, TransferStalled) or half.queue.state in ("committed", "closed")


EVENTS: dict[str, Callable[[Half], object]] = {
    "pages ready: more": lambda half: half.queue.pages_ready(NUM_PAGES, 1.0),
    "pages ready: no more than before": lambda half: half.queue.pages_ready(1, 1.0),
    "pages ready: more than there are": lambda half: half.queue.pages_ready(NUM_PAGES + 1, 1.0),
    "hand off, all pages ready": give_handoff,
    "hand off, pages missing": give_handoff,
    "the handoff is the next message": pull_handoff,
    "reply: nothing new (the answer to open)": lambda half: half.ack(0),
    "reply: acknowledges frames that were sent": lambda half: half.ack(1),
    "reply: acknowledges the same again": ack_again,
    "reply: acknowledges less than before": lambda half: half.reply(0, 0),
    "reply: acknowledges more frames than were sent": lambda half: half.ack(5),
    "reply: frames and bytes do not agree": lambda half: half.reply(2, 2 * TINY.page_bytes - 1),
    "reply: of an earlier attempt of this stripe": lambda half: half.reply(9, 9, attempt=0),
    "reply: committed": lambda half: half.reply(1, TINY.page_bytes, committed=True),
    "stream broken": lambda half: half.queue.on_broken(0, 1.0),
    "stream broken again": break_twice,
    "stream ended with a named error": lambda half: half.queue.close(),
    "resume_s passed without a live stream": no_live_stream,
    "stall_s passed without an acknowledgement": no_acknowledgement,
    "cancelled, or the owner leaves": lambda half: half.queue.close(),
}
# The state that "stream broken again" compares with is that after the first break.
CHANGES_BEFORE_IT = {"stream broken again"}


@pytest.mark.parametrize("cell", cells("sender"), ids=lambda c: f"{c.event} / {c.state}")
def test_cell(cell: Cell) -> None:
    half = in_state(cell.state, cell.event)
    assert half.queue.state == cell.state
    before, event = half.snapshot(), EVENTS[cell.event]
    match cell.outcome:
        case "violation":
            with pytest.raises(ProtocolViolation):
                event(half)
        case "defect":
            with pytest.raises(AssertionError):
                event(half)
        case "ignore":
            event(half)
            assert half.snapshot() == before or cell.event in CHANGES_BEFORE_IT
        case "requeue":
            event(half)
            assert half.queue.in_flight_bytes == half.credit.in_flight_bytes == 0
            half.queue.open_stream(0, 2.0)
            assert half.pull() is not None  # what had not been acknowledged leaves again
        case "take":
            event(half)
        case other:
            pytest.fail(f"unknown outcome {other!r}")
    assert half.queue.state == cell.next_state
    if cell.next_state in ("committed", "closed"):
        assert half.credit.in_flight_bytes == 0


def test_every_event_is_in_the_table() -> None:
    assert {cell.event for cell in cells("sender")} == set(EVENTS)


def test_handoff_that_was_lost_is_sent_again() -> None:
    half = handed_off()
    half.queue.on_broken(0, 1.0)
    half.queue.open_stream(0, 1.0)
    messages = [half.pull(), half.pull(), half.pull(), half.pull()]
    assert isinstance(messages[2], Handoff)
    assert messages[3] is None
