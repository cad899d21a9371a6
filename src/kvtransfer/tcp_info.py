"""What the kernel says of this process's TCP connections to one address (Linux: ``TCP_INFO``).

gRPC owns the sockets and shows none of them, so they are found among the process's open files by
the address of their other end. Each look at one goes through a duplicate that is closed at once: a
kept one would hold a connection open that gRPC has closed. Elsewhere than on Linux, or on a kernel
before 4.19, there are no samples.
"""

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvtransfer.tcp_sample import TcpSample

_OPEN_FILES = Path("/proc/self/fd")
# struct tcp_info of linux/tcp.h as far as tcpi_bytes_retrans: 8 bytes, then 24, 6 and 2 numbers of
# 32 bits with 4, 4 and 2 of 64 bits after them.
_TCP_INFO = struct.Struct("=8B24I4Q6I4Q2I2Q")
_US = 1e-6

Endpoint = tuple[str, int]  # a numeric address without an IPv6 scope, and a port


@dataclass(frozen=True, slots=True)
class _Connection:
    fd: int
    inode: int


class TcpConnections:
    """Those that ``find`` has found and that are still open, oldest first.

    ``num_changes`` counts how often they have become others.
    """

    def __init__(self) -> None:
        self.num_changes = 0
        self._connections: list[_Connection] = []

    def __len__(self) -> int:
        return len(self._connections)

    def find(self, peers: frozenset[Endpoint]) -> None:
        """Look for new connections to one of ``peers``. Walks all open files."""
        known = {connection.inode for connection in self._connections}
        for fd in _socket_fds():
            connection = _connection_to(peers, fd)
            if connection is not None and connection.inode not in known:
                self._connections.append(connection)
                self.num_changes += 1

    def samples(self) -> tuple[TcpSample, ...]:
        """One of each connection, in a lasting order. One that was closed is forgotten."""
        looks = [(connection, _sample(connection)) for connection in self._connections]
        live = [connection for connection, sample in looks if sample is not None]
        self.num_changes += len(self._connections) - len(live)
        self._connections = live
        return tuple(sample for _, sample in looks if sample is not None)


def _socket_fds() -> list[int]:
    try:
        return sorted(int(file.name) for file in _OPEN_FILES.iterdir() if _is_socket(file))
    except FileNotFoundError:
        return []


def _is_socket(file: Path) -> bool:
    try:
        return str(file.readlink()).startswith("socket:")
    except OSError:  # closed meanwhile
        return False


def _connection_to(peers: frozenset[Endpoint], fd: int) -> _Connection | None:
    try:
        with _duplicate_of(fd) as duplicate:
            is_ours = duplicate.type == socket.SOCK_STREAM and _peer(duplicate) in peers
            return _Connection(fd, os.fstat(duplicate.fileno()).st_ino) if is_ours else None
    except OSError:  # closed meanwhile, or not connected
        return None


@contextmanager
def _duplicate_of(fd: int) -> Iterator[socket.socket]:
    """Raises OSError when ``fd`` is closed, or is another kind of file now."""
    number = os.dup(fd)
    try:
        duplicate = socket.socket(fileno=number)
    except OSError:
        os.close(number)
        raise
    with duplicate:
        yield duplicate


def _peer(connection: socket.socket) -> Endpoint | None:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    host, port = connection.getpeername()[:2]
    return numeric(host), port


def numeric(host: str) -> str:
    """One spelling for each address: an IPv4 one that is mapped into IPv6 is IPv4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _sample(connection: _Connection) -> TcpSample | None:
    """None when that connection is no more, whatever has its number now."""
    try:
        with _duplicate_of(connection.fd) as duplicate:
            if os.fstat(duplicate.fileno()).st_ino != connection.inode:
                return None
            data = duplicate.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    except OSError:
        return None
    return parse(data) if len(data) == _TCP_INFO.size else None


def parse(tcp_info: bytes) -> TcpSample:
    """The kernel's struct, cut to ``tcpi_bytes_retrans``."""
    fields = _TCP_INFO.unpack(tcp_info)[8:]
    rtt_us, bytes_acked, notsent, min_rtt_us = fields[15], fields[26], fields[30], fields[31]
    busy_us, rwnd_limited_us, sndbuf_limited_us = fields[35:38]
    return TcpSample(
        rtt_s=rtt_us * _US,
        min_rtt_s=min_rtt_us * _US,
        busy_s=busy_us * _US,
        sndbuf_limited_s=sndbuf_limited_us * _US,
        rwnd_limited_s=rwnd_limited_us * _US,
        bytes_acked=bytes_acked,
        bytes_retransmitted=fields[41],
        notsent_bytes=notsent,
    )
