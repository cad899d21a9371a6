"""Messages to and from bytes. A payload is never copied through protobuf.

A ``PushMessage`` is plain protobuf, always laid out as field 1 (header) and then field 2 (payload):
so it is built by one join, and split by slicing. Bytes that are anything else raise
ProtocolViolation, never another error. Does not check what a message says.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import xxhash
from google.protobuf.message import DecodeError, Message

from kvtransfer import wire
from kvtransfer.messages import NO_PAYLOAD, AttachRequest, Body, Push, Reply, Standing
from pdcore.errors import ProtocolViolation
from pdcore.generation import TransferId
from pdwire.v1 import kv_transfer_pb2 as pb

M = TypeVar("M", bound=Message)

_HEADER_TAG = 0x0A  # field 1, length-delimited
_PAYLOAD_TAG = 0x12  # field 2, length-delimited
_MAX_VARINT_BYTES = 10
# Names are short, a frame has few runs, a request few choices: what is larger would only hold up
# whoever reads it.
MAX_HEADER_BYTES = 64 * 2**10


def checksum(parts: Iterable[bytes | memoryview]) -> int:
    """xxh3_64 over the parts as if joined. About 20 us a MiB: cheap enough for the event loop."""
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    return digest.intdigest()


def encode_push(
    transfer_id: TransferId, attempt: int, body: Body, payload: Sequence[bytes | memoryview] = ()
) -> bytes:
    """One ``PushMessage``; the parts of ``payload`` are copied exactly once, into the result."""
    header = wire.header_to_proto(transfer_id, attempt, body).SerializeToString()
    pieces = [bytes((_HEADER_TAG,)), _varint(len(header)), header]
    num_bytes = sum(len(part) for part in payload)
    if not num_bytes:
        return b"".join(pieces)
    return b"".join([*pieces, bytes((_PAYLOAD_TAG,)), _varint(num_bytes), *payload])


def decode_push(data: bytes) -> Push:
    """The inverse; ``payload`` is a view into ``data``."""
    header, rest = _field(memoryview(data), _HEADER_TAG, "header of a PushMessage")
    payload = NO_PAYLOAD
    if rest:
        payload, rest = _field(rest, _PAYLOAD_TAG, "payload of a PushMessage")
    if rest:
        raise ProtocolViolation(f"{len(rest)} bytes follow the payload of a PushMessage")
    if len(header) > MAX_HEADER_BYTES:
        raise ProtocolViolation(
            f"the header of a PushMessage is {len(header)} bytes long, at most {MAX_HEADER_BYTES}"
            " are allowed"
        )
    return wire.push_from_proto(_parse(pb.PushHeader(), header), payload)


def encode_reply(reply: Reply) -> bytes:
    return wire.reply_to_proto(reply).SerializeToString()


def decode_reply(data: bytes) -> Reply:
    return wire.reply_from_proto(_parse(pb.PushReply(), data))


def encode_attach(request: AttachRequest) -> bytes:
    return wire.attach_to_proto(request).SerializeToString()


def decode_attach(data: bytes) -> AttachRequest:
    return wire.attach_from_proto(_parse(pb.AttachRequest(), data))


def encode_standing(standing: Standing) -> bytes:
    return wire.standing_to_proto(standing).SerializeToString()


def decode_standing(data: bytes) -> Standing:
    return wire.standing_from_proto(_parse(pb.Standing(), data))


def encode_ping_reply(tcp_rmem_max_bytes: int | None) -> bytes:
    return pb.PingReply(tcp_rmem_max_bytes=tcp_rmem_max_bytes or 0).SerializeToString()


def decode_ping_reply(data: bytes) -> int | None:
    """The largest receive buffer of the other end, if it knows."""
    return _parse(pb.PingReply(), data).tcp_rmem_max_bytes or None


def encode_warm(filler: bytes) -> bytes:
    return pb.WarmMessage(filler=filler).SerializeToString()


def decode_warm(data: bytes) -> int:
    """How many bytes of filler there are; they are not looked at."""
    filler, rest = _field(memoryview(data), _HEADER_TAG, "filler of a WarmMessage")
    if rest:
        raise ProtocolViolation(f"{len(rest)} bytes follow the filler of a WarmMessage")
    return len(filler)


def encode_warm_reply(received_bytes: int) -> bytes:
    return pb.WarmReply(received_bytes=received_bytes).SerializeToString()


def decode_warm_reply(data: bytes) -> int:
    return _parse(pb.WarmReply(), data).received_bytes


def _parse(message: M, data: bytes | memoryview) -> M:
    try:
        message.ParseFromString(bytes(data))
    except DecodeError:
        name = message.DESCRIPTOR.name
        raise ProtocolViolation(f"{len(data)} bytes came that are no {name}") from None
    return message


def _field(data: memoryview, tag: int, name: str) -> tuple[memoryview, memoryview]:
    """(the field's content, what follows it)."""
    if not data or data[0] != tag:
        found = f"byte 0x{data[0]:02x}" if data else "nothing"
        raise ProtocolViolation(f"expected the {name}, found {found}")
    length, start = _read_varint(data, 1, name)
    end = start + length
    if end > len(data):
        raise ProtocolViolation(f"the {name} says {length} bytes, {len(data) - start} follow")
    return data[start:end], data[end:]


def _varint(value: int) -> bytes:
    """Seven bits a byte, least first, the high bit set on all but the last."""
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def _read_varint(data: memoryview, start: int, name: str) -> tuple[int, int]:
    """(value, position after it)."""
    value = 0
    for index, byte in enumerate(data[start : start + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, start + index + 1
    raise ProtocolViolation(f"the length of the {name} is cut off")
