"""What the state table does not say: bounds, several runs in a frame, replies."""

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kvtransfer import registry as registry_module
from kvtransfer.framing import checksum
from kvtransfer.handshake import PROTOCOL
from kvtransfer.incoming import TransferState
from kvtransfer.messages import Extent, Frame, Handoff, Opening, PageRun, Push, Reply
from kvtransfer.registry import MAX_PARKED, TransferRegistry
from page_memory import RECEIVER, SENDER, TINY, PageMemory, Target
from pdcore.cluster import NodeName
from pdcore.errors import (
    ChecksumMismatch,
    InternalError,
    ProtocolViolation,
    TransferFailed,
    UnknownTransfer,
)
from pdcore.generation import TransferId
from pdcore.settings import TransferSettings

OPENING = Opening(SENDER, RECEIVER.epoch, PROTOCOL, TINY, "raw", Extent(12, 3, 1), stripe=0)
HANDOFF = Handoff((7,), 0, 3 * TINY.page_bytes)


def make(sink: PageMemory | None = None) -> TransferRegistry:
    return TransferRegistry(RECEIVER, TINY, sink or PageMemory(TINY, 10), TransferSettings())


def test_runs_of_one_frame_go_to_their_pages() -> None:
    sink, source = PageMemory(TINY, 10), PageMemory(TINY, 3, seed=4)
    registry = make(sink)
    registry.expect(TransferId("t"), Target(12, [8, 2, 5, 9]), 0.0)
    stream = registry.open(Push(TransferId("t"), 0, OPENING), 0.0)
    runs = (PageRun(2, 1, 0, 3), PageRun(0, 2, 1, 2), PageRun(0, 2, 0, 1))
    payload = b"".join(
        bytes(part)
        for run in runs
        for part in source.read(
            range(run.first_page, run.first_page + run.num_pages), run.first_layer, run.num_layers
        )
    )
    frame = Frame(0, runs, checksum((payload,)))
    registry.receive(stream, Push(TransferId("t"), 0, frame, memoryview(payload)), 1.0)
    registry.receive(stream, Push(TransferId("t"), 0, HANDOFF), 1.0)
    assert registry.state(TransferId("t")) is TransferState.COMMITTED
    assert sink.pages([8, 2, 5]) == bytes(source.data)
    assert sink.page(9) == bytes(TINY.page_bytes)
    assert stream.reply(44) == Reply(0, 1, 3 * TINY.page_bytes, 44, committed=True)


def test_only_so_many_ids_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "MAX_REMEMBERED", 2)
    registry = make()
    ids = [TransferId(str(number)) for number in range(3)]
    for transfer_id in ids:
        registry.leave(registry.expect(transfer_id, Target(12, range(3)), 0.0))
    states = [registry.state(transfer_id) for transfer_id in ids]
    assert states == [TransferState.UNKNOWN, TransferState.FAILED, TransferState.FAILED]


def test_a_late_stream_hears_why_the_transfer_is_over() -> None:
    registry = make()
    registry.leave(registry.expect(TransferId("t"), Target(12, range(3)), 0.0))
    with pytest.raises(TransferFailed, match="transfer t is over: the decode node gave up"):
        registry.open(Push(TransferId("t"), 0, OPENING), 1.0)


def test_a_flood_under_made_up_names_is_bounded_and_ends_no_transfer() -> None:
    registry = make()
    transfer = registry.expect(TransferId("t"), Target(12, range(3)), 0.0)
    num_refused = 0
    for number in range(2 * MAX_PARKED):
        sender = replace(SENDER, node=NodeName(f"peer-{number}"))
        push = Push(TransferId(f"made-up-{number}"), 0, replace(OPENING, sender=sender))
        try:
            registry.open(push, 0.0)
        except UnknownTransfer as error:
            assert f"{MAX_PARKED} streams of all peers wait already" in str(error)
            num_refused += 1
    assert registry.num_parked == num_refused == MAX_PARKED
    assert registry.open(Push(transfer.transfer_id, 0, OPENING), 0.0).is_open


def test_names_that_would_fill_the_memory_are_refused() -> None:
    registry, long = make(), "x" * 257
    named = replace(OPENING, sender=replace(SENDER, node=NodeName(long)))
    for push in (Push(TransferId("t"), 0, named), Push(TransferId(long), 0, OPENING)):
        with pytest.raises(ProtocolViolation, match="257 characters long, at most 256 are allowed"):
            registry.open(push, 0.0)
    assert registry.num_parked == 0


class Payload(bytearray):
    """Bytes that say when nobody holds them any more."""


def test_a_transfer_that_is_over_holds_no_payload() -> None:
    """An error's traceback holds the frames that it passed, and what those knew."""
    registry, payload = make(), Payload(TINY.page_bytes)
    transfer = registry.expect(TransferId("t"), Target(12, range(3)), 0.0)
    stream = registry.open(Push(TransferId("t"), 0, OPENING), 0.0)
    frame = Frame(0, (PageRun(0, 1, 0, 3),), checksum=5)
    registry.receive(stream, Push(TransferId("t"), 0, frame, memoryview(payload)), 1.0)
    assert isinstance(transfer.error, ChecksumMismatch)
    registry.leave(transfer)
    held = weakref.ref(payload)
    del stream, transfer, payload
    gc.collect()
    assert held() is None
    with pytest.raises(TransferFailed, match="transfer t is over: frame 0 of stripe 0"):
        registry.open(Push(TransferId("t"), 0, OPENING), 2.0)


def test_an_expected_transfer_waits_without_limit() -> None:
    transfer = make().expect(TransferId("t"), Target(12, range(3)), 0.0)
    assert transfer.deadline() is None


class BrokenTarget(Target):
    def open(self, num_pages: int) -> Sequence[int]:
        raise ZeroDivisionError


def test_a_promise_that_cannot_be_kept_fails_the_transfer() -> None:
    registry = make()
    transfer = registry.expect(TransferId("t"), BrokenTarget(12, range(3)), 0.0)
    with pytest.raises(ZeroDivisionError):
        registry.open(Push(TransferId("t"), 0, OPENING), 0.0)
    assert isinstance(transfer.error, InternalError)


@pytest.mark.parametrize(
    ("handoff", "says"),
    [
        (replace(HANDOFF, first_token_ids=()), "the handoff has 0 first tokens"),
        (
            replace(HANDOFF, cached_tokens=13),
            "the handoff counts 13 cached tokens of a prompt of 12",
        ),
    ],
)
def test_a_handoff_that_cannot_be_fails_the_transfer(handoff: Handoff, says: str) -> None:
    registry = make()
    transfer = registry.expect(TransferId("t"), Target(12, range(3)), 0.0)
    stream = registry.open(Push(TransferId("t"), 0, OPENING), 0.0)
    registry.receive(stream, Push(TransferId("t"), 0, handoff), 1.0)
    assert says in str(transfer.error)
