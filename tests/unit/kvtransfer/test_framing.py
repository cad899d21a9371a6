"""Our bytes are protobuf's bytes, both ways; garbage is a ProtocolViolation and nothing else."""

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtransfer import framing
from kvtransfer.messages import (
    AttachRequest,
    Body,
    Extent,
    Frame,
    Handoff,
    Opening,
    PageRun,
    Reply,
    Standing,
)
from page_memory import RECEIVER, SENDER, TINY
from pdcore.errors import ProtocolViolation
from pdcore.generation import TransferId
from pdwire.v1 import kv_transfer_pb2 as pb

ID = TransferId("transfer-1")
OPENING = Opening(SENDER, RECEIVER.epoch, 1, TINY, "raw", Extent(10, 3, 4), stripe=3)
FRAME = Frame(7, (PageRun(0, 2, 0, 3), PageRun(5, 1, 1, 2)), checksum=2**64 - 1)
HANDOFF = Handoff((1, 2**31), 16, 2**40)
BODIES = [OPENING, FRAME, HANDOFF]

numbers = st.integers(0, 2**32 - 1)
runs = st.builds(PageRun, numbers, numbers, numbers, numbers)
frames = st.builds(
    Frame,
    st.integers(0, 2**64 - 1),
    st.lists(runs, max_size=4).map(tuple),
    st.integers(0, 2**64 - 1),
)


@pytest.mark.parametrize("body", BODIES)
def test_round_trip(body: Body) -> None:
    push = framing.decode_push(framing.encode_push(ID, 3, body))
    assert (push.transfer_id, push.attempt, push.body) == (ID, 3, body)
    assert push.payload == b""


@settings(deadline=None)
@given(frames, numbers, st.lists(st.binary(max_size=300), max_size=4))
def test_round_trip_of_payloads(frame: Frame, attempt: int, parts: list[bytes]) -> None:
    data = framing.encode_push(ID, attempt, frame, [memoryview(part) for part in parts])
    push = framing.decode_push(data)
    assert (push.body, push.attempt, bytes(push.payload)) == (frame, attempt, b"".join(parts))


@pytest.mark.parametrize("size", [1, 127, 128, 16383, 16384, 2**21])
def test_protobuf_reads_ours_and_we_read_protobuf(size: int) -> None:
    payload = bytes(index % 251 for index in range(size))
    ours = framing.encode_push(ID, 1, FRAME, [payload])
    message = pb.PushMessage.FromString(ours)
    assert message.payload == payload
    assert message.header.transfer_id == ID
    assert message.header.frame.checksum == FRAME.checksum
    assert message.SerializeToString() == ours
    assert bytes(framing.decode_push(message.SerializeToString()).payload) == payload


def test_payload_is_a_view() -> None:
    data = framing.encode_push(ID, 0, FRAME, [b"payload"])
    assert framing.decode_push(data).payload.obj is data


@settings(deadline=None)
@given(st.sampled_from(BODIES), st.binary(max_size=40), st.data())
def test_cut_messages_are_violations(body: Body, payload: bytes, data: st.DataObject) -> None:
    whole = framing.encode_push(ID, 0, body, [payload])
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        push = framing.decode_push(cut)
    except ProtocolViolation:
        return
    assert push.payload == b"", "only a cut right after the header leaves a message"
    assert whole.startswith(framing.encode_push(ID, 0, body))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_a_violation(data: bytes) -> None:
    for decode in (
        framing.decode_push,
        framing.decode_reply,
        framing.decode_attach,
        framing.decode_standing,
    ):
        try:
            decode(data)
        except ProtocolViolation:
            continue


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "found nothing"),
        (b"\x12\x00", "found byte 0x12"),
        (b"\x0a\xff", "length of the header of a PushMessage is cut off"),
        (b"\x0a" + b"\xff" * 11, "length of the header of a PushMessage is cut off"),
        (b"\x0a\x05abc", "says 5 bytes, 3 follow"),
        (b"\x0a\x02\x08\x01\x12\x00\x12", "1 bytes follow the payload"),
        (b"\x0a\x00", "none of open, frame and handoff"),
        (b"\x0a\x81\x80\x04" + bytes(65537), "is 65537 bytes long, at most 65536"),
        (b"\x0a\x01\x0a", "1 bytes came that are no PushHeader"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, says: str) -> None:
    with pytest.raises(ProtocolViolation, match=says):
        framing.decode_push(data)


def test_other_messages_round_trip() -> None:
    reply = Reply(1, 2, 2**40, 2**33, committed=True)
    assert framing.decode_reply(framing.encode_reply(reply)) == reply
    request = AttachRequest(SENDER, TINY, 1)
    assert framing.decode_attach(framing.encode_attach(request)) == request
    standing = Standing(RECEIVER, TINY, 1, 2**33)
    assert framing.decode_standing(framing.encode_standing(standing)) == standing


def test_checksum_is_xxh3_of_the_joined_parts() -> None:
    parts = [b"KV", memoryview(b" pages"), b""]
    assert framing.checksum(parts) == xxhash.xxh3_64_intdigest(b"KV pages")
