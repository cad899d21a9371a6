"""Walks the receiver's state table of docs/wire-protocol.md, every event in every state."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest

from kvtransfer.framing import checksum
from kvtransfer.handshake import PROTOCOL
from kvtransfer.incoming_stream import IncomingStream, StreamState
from kvtransfer.messages import Body, Extent, Frame, Handoff, Opening, PageRun, Push
from kvtransfer.registry import MAX_PARKED, TransferRegistry
from page_memory import RECEIVER, SENDER, TINY, PageMemory, Target
from pdcore.cluster import Epoch, NodeName
from pdcore.errors import PdspanError, error_named
from pdcore.generation import TransferId
from pdcore.settings import TransferSettings
from state_tables import Cell, cells

ID = TransferId("t")
SETTINGS = TransferSettings(park_streams=4)
NUM_PAGES = 3
NUM_TOKENS = NUM_PAGES * TINY.page_tokens - 1
EXTENT = Extent(NUM_TOKENS, NUM_PAGES, num_stripes=4)
HANDOFF = Handoff((7,), 0, NUM_PAGES * TINY.page_bytes)
OPENING = Opening(
    sender=SENDER,
    receiver_epoch=RECEIVER.epoch,
    protocol=PROTOCOL,
    layout=TINY,
    codec="raw",
    extent=EXTENT,
    stripe=0,
)

INTRUDER = replace(SENDER, epoch=Epoch(12))  # the same node in another life


class Half:
    """A receiver and one transfer, with two streams (stripes 0 and 1) once they can be."""

    def __init__(self) -> None:
        self.sink = PageMemory(TINY, NUM_PAGES)
        self.source = PageMemory(TINY, NUM_PAGES, seed=1)
        self.target = Target(NUM_TOKENS, range(NUM_PAGES))
        self.registry = TransferRegistry(RECEIVER, TINY, self.sink, SETTINGS)
        self.streams: dict[int, IncomingStream] = {}
        self.last_opened: IncomingStream | None = None
        self.refusal: PdspanError | None = None

    def push(self, body: Body, *, attempt: int = 1, payload: bytes = b"") -> Push:
        return Push(ID, attempt, body, memoryview(payload))

    def open(self, stripe: int, *, attempt: int = 1, **changes: object) -> None:
        opening = replace(OPENING, stripe=stripe, **changes)  # type: ignore[arg-type]
        try:
            self.last_opened = self.registry.open(self.push(opening, attempt=attempt), 0.0)
            self.streams.setdefault(stripe, self.last_opened)
        except PdspanError as error:
            self.refusal = error

    def expect(self) -> None:
        try:
            self.registry.expect(ID, self.target, 0.0)
        except PdspanError as error:
            self.refusal = error

    def frame(self, stripe: int, page: int, **changes: object) -> None:
        """The next frame of the stripe: one page, or what ``changes`` make of it."""
        payload = self.source.page(page % NUM_PAGES)
        runs = (PageRun(page, 1, 0, TINY.num_layers),)
        frame = Frame(self.streams[stripe].num_frames, runs, checksum((payload,)))
        self.send(stripe, replace(frame, **changes), payload)  # type: ignore[arg-type]

    def send(self, stripe: int, body: Body, payload: bytes = b"") -> None:
        self.registry.receive(self.streams[stripe], self.push(body, payload=payload), 1.0)

    def check(self, now: float) -> None:
        transfer = self.registry.transfer(ID)
        if transfer is not None:
            transfer.check(now)

    def owner_leaves(self) -> None:
        transfer = self.registry.transfer(ID)
        if transfer is not None:
            self.registry.leave(transfer)

    @property
    def state(self) -> str:
        return self.registry.state(ID)

    def acked(self) -> tuple[int, ...]:
        return tuple(self.streams[stripe].num_frames for stripe in sorted(self.streams))

    def fill(self, *, but: int) -> None:
        """Send all pages except the last ``but``, on stripe 0."""
        for page in range(NUM_PAGES - but):
            self.frame(0, page)


def unknown() -> Half:
    return Half()


def parked() -> Half:
    half = Half()
    half.open(0)
    half.open(1)
    return half


def expected() -> Half:
    half = Half()
    half.expect()
    return half


def receiving() -> Half:
    half = parked()
    half.expect()
    half.frame(0, 0)
    return half


def committed() -> Half:
    half = receiving()
    half.frame(0, 1)
    half.frame(0, 2)
    half.send(0, HANDOFF)
    return half


def done() -> Half:
    half = committed()
    half.owner_leaves()
    return half


def failed() -> Half:
    half = receiving()
    half.owner_leaves()
    return half


STATES: dict[str, Callable[[], Half]] = {
    "unknown": unknown,
    "parked": parked,
    "expected": expected,
    "receiving": receiving,
    "committed": committed,
    "done": done,
    "failed": failed,
}


def open_with_full_park(half: Half) -> None:
    for number in range(SETTINGS.park_streams - half.registry.num_parked):
        push = Push(TransferId(f"other-{number}"), 0, OPENING)
        half.registry.open(push, 0.0)
    half.open(2)


def open_with_crowded_park(half: Half) -> None:
    """Each of the others gives itself another name."""
    for number in range(MAX_PARKED - half.registry.num_parked):
        sender = replace(SENDER, node=NodeName(f"crowd-{number}"))
        push = Push(TransferId(f"other-{number}"), 0, replace(OPENING, sender=sender))
        half.registry.open(push, 0.0)
    half.open(2)


def last_missing(half: Half) -> None:
    half.frame(0, 1)
    half.send(0, HANDOFF)
    half.frame(1, 2)


def again_on_its_stream(half: Half) -> None:
    half.frame(0, 0, sequence=0)


def of_superseded(half: Half) -> None:
    half.open(0, attempt=2)
    half.frame(0, 1)


def writing_raises(half: Half) -> None:
    """A defect: the stream's handler hears of it too."""
    half.sink.fails = True
    expectation = pytest.raises(OSError) if half.state == "receiving" else nullcontext()
    with expectation:
        half.frame(0, 1)


def complete_with_handoff(half: Half) -> None:
    half.frame(0, 1)
    half.frame(0, 2)
    half.send(0, HANDOFF)


def handoff_again(half: Half) -> None:
    half.send(0, HANDOFF)
    half.send(1, HANDOFF)


def handoff_that_differs(half: Half) -> None:
    half.send(0, HANDOFF)
    half.send(0, replace(HANDOFF, first_token_ids=(8,)))


def break_last(half: Half) -> None:
    for stream in half.streams.values():
        half.registry.broken(stream, 1.0)
        half.registry.broken(stream, 1.0)


def park_ran_out(half: Half) -> None:
    for stream in half.streams.values():
        half.registry.park_ran_out(stream)
        half.refusal = stream.error


def resume_ran_out(half: Half) -> None:
    break_last(half)
    half.check(1.0 + SETTINGS.resume_s - 0.001)
    assert half.state == "receiving"
    half.check(1.0 + SETTINGS.resume_s)


def stall_ran_out(half: Half) -> None:
    half.send(0, HANDOFF)
    half.check(1.0 + SETTINGS.stall_s - 0.001)
    assert half.state == "receiving"
    half.check(1.0 + SETTINGS.stall_s)


OUT_OF_RANGE = (PageRun(NUM_PAGES, 1, 0, TINY.num_layers),)
EVENTS: dict[str, Callable[[Half], None]] = {
    "Generate announces it": Half.expect,
    "open": lambda half: half.open(2),
    "open, newer attempt of an open stripe": lambda half: half.open(0, attempt=2),
    "open, attempt not newer": lambda half: half.open(0),
    "open, from another sender": lambda half: half.open(2, sender=INTRUDER),
    "open, other epoch": lambda half: half.open(2, receiver_epoch=Epoch(1)),
    "open, other layout": lambda half: half.open(2, layout=replace(TINY, head_dim=8)),
    "open, other extent than announced": lambda half: half.open(2, extent=Extent(99, 25, 4)),
    "open, the peer has park_streams waiting": open_with_full_park,
    "open, 1024 streams of all peers wait": open_with_crowded_park,
    "frame": lambda half: half.frame(0, 1),
    "frame, last one missing, handoff known": last_missing,
    "frame again on its stream": again_on_its_stream,
    "frame again on another stream": lambda half: half.frame(1, 0),
    "frame of a superseded stream": of_superseded,
    "frame, a sequence number left out": lambda half: half.frame(0, 1, sequence=9),
    "frame, pages or layers out of range": lambda half: half.frame(0, 1, runs=OUT_OF_RANGE),
    "frame, payload of another length": lambda half: half.frame(
        0, 1, runs=(PageRun(1, 1, 0, TINY.num_layers - 1),)
    ),
    "frame, checksum differs": lambda half: half.frame(0, 1, checksum=5),
    "frame, writing its pages raises": writing_raises,
    "handoff, pages missing": lambda half: half.send(0, HANDOFF),
    "handoff, everything there": complete_with_handoff,
    "handoff again, equal": handoff_again,
    "handoff again, different": handoff_that_differs,
    "handoff, other total of bytes": lambda half: half.send(0, replace(HANDOFF, page_bytes=1)),
    "a second open on a stream": lambda half: half.send(0, OPENING),
    "stream broken, others open": lambda half: half.registry.broken(half.streams[0], 1.0),
    "last stream broken": break_last,
    "park_s passed": park_ran_out,
    "resume_s passed without a stream": resume_ran_out,
    "stall_s passed after the handoff": stall_ran_out,
    "the owner leaves": Half.owner_leaves,
}


@pytest.mark.parametrize("cell", cells("receiver"), ids=lambda c: f"{c.event} / {c.state}")
def test_cell(cell: Cell) -> None:
    half = STATES[cell.state]()
    assert half.state == cell.state
    if cell.outcome == "wait":
        assert all(stream.state is StreamState.PARKED for stream in half.streams.values())
        return  # a parked stream is not read
    writes, acked = half.sink.num_writes.total(), half.acked()
    EVENTS[cell.event](half)
    assert half.state == cell.next_state
    num_new_writes = half.sink.num_writes.total() - writes
    outcome, _, error = cell.outcome.partition(" ")
    check = {
        "join": is_open,
        "supersede": superseded,
        "park": is_parked,
        "commit": is_committed,
        "refuse": refused,
        "fail": has_failed,
    }.get(outcome)
    if check is not None:
        check(half, error)
    expected_writes = {"place": TINY.num_layers, "ack": 0, "repeat": 0, "drop": 0, "keep": 0}
    if outcome in expected_writes:
        assert num_new_writes == expected_writes[outcome]
    if outcome in ("place", "ack"):
        assert sum(half.acked()) == sum(acked) + 1
    if outcome in ("repeat", "drop", "keep"):
        assert half.acked() == acked


def is_open(half: Half, _: str) -> None:
    assert all(stream.state is StreamState.OPEN for stream in half.streams.values())
    assert half.target.num_opened == 1


def superseded(half: Half, _: str) -> None:
    assert half.streams[0].state is StreamState.ENDED
    assert half.last_opened is not None and half.last_opened.is_open
    assert half.target.num_opened == 1


def is_parked(half: Half, _: str) -> None:
    assert half.last_opened is not None and half.last_opened.state is StreamState.PARKED
    assert half.target.num_opened == 0


def is_committed(half: Half, _: str) -> None:
    assert half.refusal is None
    streams = [*half.streams.values(), half.last_opened]
    assert all(stream is not None and stream.reply(1).committed for stream in streams)
    assert half.sink.pages(range(NUM_PAGES)) == half.source.pages(range(NUM_PAGES))


def refused(half: Half, name: str) -> None:
    assert type(half.refusal) is type(error_named(name, ""))


def has_failed(half: Half, name: str) -> None:
    transfer = half.registry.transfer(ID)
    error = half.streams[0].error if transfer is None else transfer.error
    assert type(error) is type(error_named(name, ""))
    for stream in half.streams.values():
        assert not stream.is_open


def test_every_event_is_in_the_table() -> None:
    assert {cell.event for cell in cells("receiver")} == set(EVENTS)
