"""What our own sender never does, said to the receiver by hand."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
import pytest

from kvtransfer import framing
from kvtransfer.data_channels import PUSH
from kvtransfer.handshake import PROTOCOL
from kvtransfer.messages import Extent, Frame, Handoff, Identity, Opening, PageRun
from page_memory import RECEIVER, SENDER, Target
from pdcore.cluster import NodeName
from pdcore.errors import ChecksumMismatch, ProtocolViolation
from pdcore.generation import TransferId
from pdcore.rpc import open_channel
from pdcore.rpc_errors import error_from_rpc
from pdcore.settings import TlsSettings
from waiting import raises
from wired_pair import LAYOUT, NUM_PAGES, NUM_TOKENS, RECEIVER_PAGES, Wire, wired


@asynccontextmanager
async def raw_stream(wire: Wire) -> AsyncIterator[grpc.aio.StreamStreamCall]:
    channel = open_channel(f"127.0.0.1:{wire.relay.port}", TlsSettings())
    async with channel:
        yield channel.stream_stream(PUSH)()


def opening(name: str) -> bytes:
    return framing.encode_push(
        TransferId(name),
        0,
        Opening(
            sender=Identity(NodeName("prefill-0"), SENDER.epoch),
            receiver_epoch=RECEIVER.epoch,
            protocol=PROTOCOL,
            layout=LAYOUT,
            codec="raw",
            extent=Extent(NUM_TOKENS, NUM_PAGES, 1),
            stripe=0,
        ),
    )


async def refusal(call: grpc.aio.StreamStreamCall, messages: Sequence[bytes]) -> Exception:
    """What ends the stream after these messages."""
    try:
        for message in messages:
            await call.write(message)
        while await call.read() is not grpc.aio.EOF:
            continue
    except grpc.aio.AioRpcError as error:
        return error_from_rpc(error, "decode-0")
    raise AssertionError("the stream ended well")


async def test_corrupt_payload_fails_the_transfer() -> None:
    async with wired() as wire, raw_stream(wire) as call, asyncio.TaskGroup() as tasks:
        received = tasks.create_task(raises(ChecksumMismatch, wire.receive("t")))
        payload = wire.source.page(0)
        frame = Frame(0, (PageRun(0, 1, 0, 4),), framing.checksum((payload,)))
        message = bytearray(framing.encode_push(TransferId("t"), 0, frame, (payload,)))
        message[-1] ^= 1
        error = await refusal(call, [opening("t"), bytes(message)])
        assert isinstance(error, ChecksumMismatch)
        assert not wire.sink.num_writes
    assert "frame 0 of stripe 0 (65536 bytes)" in str(received.result())


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([b"garbage"], "expected the header of a PushMessage"),
        ([b""], "expected the header of a PushMessage, found nothing"),
        ([opening("t"), b"\x0a\x7f"], "the header of a PushMessage says 127 bytes, 0 follow"),
        ([opening("t"), opening("t")], "a second opening"),
        ([opening("t"), framing.encode_push(TransferId("u"), 0, Handoff((1,), 0, 1))], "of u on a"),
        ([framing.encode_push(TransferId("t"), 0, Handoff((1,), 0, 1))], "begins with Handoff"),
    ],
)
async def test_what_is_no_protocol_is_named(messages: list[bytes], says: str) -> None:
    async with wired() as wire, raw_stream(wire) as call:
        target = Target(NUM_TOKENS, RECEIVER_PAGES)
        async with wire.receiver.expect(TransferId("t"), target):
            error = await refusal(call, messages)
    assert isinstance(error, ProtocolViolation)
    assert says in str(error)


async def test_a_stream_that_says_nothing_is_not_kept() -> None:
    async with wired() as wire, raw_stream(wire) as call, asyncio.timeout(5):
        error = await refusal(call, [])
    assert isinstance(error, ProtocolViolation)
    assert "no opening came within 0.3 s" in str(error)
