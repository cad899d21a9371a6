"""Super-packets are cut between segments: every piece is a packet that the kernel would accept."""

import ctypes
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwarder_library import forwarder_library

SOURCE, TARGET = bytes([198, 18, 0, 1]), bytes([198, 18, 0, 2])
SEQUENCE, IP_ID = 2**32 - 3000, 65534  # both wrap within the packet
FIN, PSH, ACK, CWR = 0x01, 0x08, 0x10, 0x80
NEEDS_CSUM, GSO_TCPV4 = 1, 1
OPTIONS = bytes([1, 1, 8, 10]) + bytes(range(8))  # timestamps
HEADER = 20 + 20 + len(OPTIONS)


def checksum(data: bytes) -> int:
    """RFC 1071, written from the text."""
    padded = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def pseudo_header_sum(tcp_size: int) -> int:
    return ~checksum(SOURCE + TARGET + struct.pack("!HH", 6, tcp_size)) & 0xFFFF


def super_packet(payload: bytes, segment_size: int, flags: int) -> bytes:
    tcp_size = 20 + len(OPTIONS) + len(payload)
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + tcp_size, IP_ID, 0x4000, 64, 6, 0, SOURCE, TARGET
    )
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    data_offset = (20 + len(OPTIONS)) // 4 << 4
    fields = (5001, 40000, SEQUENCE, 77, data_offset, flags, 4096, pseudo_header_sum(tcp_size), 0)
    tcp = struct.pack("!HHIIBBHHH", *fields)
    virtio = struct.pack("<BBHHHH", NEEDS_CSUM, GSO_TCPV4, HEADER, segment_size, 20, 16)
    return virtio + ip + tcp + OPTIONS + payload


def parse(data: bytes):  # type: ignore[no-untyped-def]
    buffer = ctypes.create_string_buffer(data, len(data))
    packet = forwarder_library().packet_parse(ctypes.addressof(buffer), len(data))
    packet.keep = buffer
    return packet


def cut(packet, first: int, num: int) -> bytes:  # type: ignore[no-untyped-def]
    room = ctypes.create_string_buffer(packet.size)
    size = forwarder_library().packet_cut(ctypes.byref(packet), first, num, room)
    return room.raw[:size]


@settings(deadline=None)  # the first call compiles
@given(
    payload_size=st.integers(2, 60_000),
    segment_size=st.integers(1, 1448).filter(lambda size: size >= 1),
    data=st.data(),
)
def test_a_run_of_segments_is_a_packet_of_its_own(
    payload_size: int, segment_size: int, data: st.DataObject
) -> None:
    segment_size = max(segment_size, payload_size // 1000)
    payload = bytes(number * 7 % 251 for number in range(payload_size))
    packet = parse(super_packet(payload, segment_size, FIN | PSH | ACK | CWR))
    num_segments = -(-payload_size // segment_size)
    if num_segments == 1:
        return
    assert packet.num_segments == num_segments
    first = data.draw(st.integers(0, num_segments - 1))
    num = data.draw(st.integers(1, num_segments - first))
    piece = cut(packet, first, num)

    kept = payload[first * segment_size : (first + num) * segment_size]
    virtio, ip, tcp = piece[:10], piece[10:30], piece[30 : 10 + HEADER]
    assert piece[10 + HEADER :] == kept
    flags, gso_type, _, gso_size, csum_start, csum_offset = struct.unpack("<BBHHHH", virtio)
    assert (flags, csum_start, csum_offset) == (NEEDS_CSUM, 20, 16)
    assert (gso_type, gso_size) == ((GSO_TCPV4, segment_size) if num > 1 else (0, 0))

    assert checksum(ip) == 0
    whole = num == num_segments
    assert struct.unpack("!H", ip[2:4])[0] == HEADER + len(kept)
    assert struct.unpack("!H", ip[4:6])[0] == (IP_ID + first) % 2**16
    sequence, _, _, tcp_flags, _, check = struct.unpack("!IIBBHH", tcp[4:18])
    assert sequence == (SEQUENCE + first * segment_size) % 2**32
    assert bool(tcp_flags & CWR) == (first == 0)
    assert bool(tcp_flags & FIN) == bool(tcp_flags & PSH) == (first + num == num_segments)
    assert tcp_flags & ACK
    assert check == pseudo_header_sum(20 + len(OPTIONS) + len(kept)), whole
    assert tcp[20:] == OPTIONS


def test_wire_bytes_count_every_header() -> None:
    packet = parse(super_packet(bytes(1448 * 3 + 10), 1448, ACK))
    wire_bytes = forwarder_library().packet_wire_bytes
    assert wire_bytes(ctypes.byref(packet), 0, 4) == 1448 * 3 + 10 + 4 * HEADER
    assert wire_bytes(ctypes.byref(packet), 0, 1) == 1500
    assert wire_bytes(ctypes.byref(packet), 3, 1) == 10 + HEADER
    assert wire_bytes(ctypes.byref(packet), 1, 0) == 0


@pytest.mark.parametrize("size", [1, 20, 40, 200])
def test_what_is_no_super_packet_is_one_packet(size: int) -> None:
    packet = parse(bytes(10) + bytes(size))
    assert packet.num_segments == 1
    assert forwarder_library().packet_wire_bytes(ctypes.byref(packet), 0, 1) == size
    assert cut(packet, 0, 1) == bytes(10) + bytes(size)


def test_a_header_that_lies_about_its_size_is_one_packet() -> None:
    whole = super_packet(bytes(5000), 1448, ACK)
    assert parse(whole[:25]).num_segments == 1
    assert parse(whole[: 10 + HEADER + 1448]).num_segments == 1


@pytest.mark.parametrize("at", [10, 10 + 20 + 12], ids=["IP", "TCP"])
@pytest.mark.parametrize("words", range(5))
def test_a_header_shorter_than_can_be_is_one_packet(at: int, words: int) -> None:
    """Else its fields would be read and put right where they are not, past what was copied."""
    damaged = bytearray(super_packet(bytes(5000), 1448, ACK))
    damaged[at] = 0x40 | words if at == 10 else words << 4
    assert parse(bytes(damaged)).num_segments == 1
