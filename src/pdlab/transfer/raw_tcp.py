"""The first yardstick: the same scattered pages over plain sockets, with no checks at all.

Each connection has a thread at either end. Chunks of about 1 MiB are pulled from one shared line,
so that a slow connection holds up no other, and each is announced by its place in the payload: two
whole numbers. When every connection has announced the end, the receiver answers with one byte.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial

from pdcore.errors import PeerUnavailable
from pdcore.rpc import split_address
from pdlab.transfer.arm import Arm, Place
from pdlab.transfer.messages import Move, Peer
from pdlab.transfer.pool import Extent, Pool

CHUNK_BYTES = 2**20
MAX_PARTS = 1024  # IOV_MAX of Linux
_HEADER = struct.Struct("!QQ")  # first page, number of pages; no pages: the end
_DONE = b"."


def raw_tcp_arm(num_connections: int) -> Arm:
    return Arm(partial(_sending, num_connections), partial(_receiving, num_connections))


@asynccontextmanager
async def _sending(num_connections: int, place: Place, peer: Peer) -> AsyncIterator["RawSending"]:
    with ExitStack() as stack:
        address = split_address(peer.address)
        sockets = [stack.enter_context(_connect(address)) for _ in range(num_connections)]
        threads = stack.enter_context(ThreadPoolExecutor(num_connections))
        yield RawSending(place.pool, sockets, threads)


def _connect(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class RawSending:
    def __init__(
        self, pool: Pool, sockets: Sequence[socket.socket], threads: ThreadPoolExecutor
    ) -> None:
        self._pool = pool
        self._sockets = sockets
        self._threads = threads

    async def send(self, move: Move) -> None:
        chunks, lock = self._chunks(move), threading.Lock()
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(
                loop.run_in_executor(self._threads, self._send, connection, chunks, lock)
                for connection in self._sockets
            )
        )
        done = await loop.run_in_executor(self._threads, self._sockets[0].recv, 1)
        if done != _DONE:
            raise PeerUnavailable("the raw receiver went away")

    def _send(
        self, connection: socket.socket, chunks: Iterator[Extent], lock: threading.Lock
    ) -> None:
        while True:
            with lock:
                extent = next(chunks, None)
            if extent is None:
                connection.sendall(_HEADER.pack(0, 0))
                return
            header = memoryview(_HEADER.pack(extent.first_page, extent.num_pages))
            _send_all(connection, [header, *self._pool.views(extent)])

    def _chunks(self, move: Move) -> Iterator[Extent]:
        step = min(max(1, CHUNK_BYTES // self._pool.layout.page_bytes), MAX_PARTS - 1)
        end = move.first_page + move.num_pages
        for first_page in range(move.first_page, end, step):
            yield Extent(first_page, min(step, end - first_page))


@asynccontextmanager
async def _receiving(num_connections: int, place: Place) -> AsyncIterator["RawReceiving"]:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((place.host, 0)))
        threads = stack.enter_context(ThreadPoolExecutor(num_connections))
        receiving = RawReceiving(place.pool, listener, num_connections, threads)
        stack.callback(receiving.close)
        yield receiving


class RawReceiving:
    def __init__(
        self,
        pool: Pool,
        listener: socket.socket,
        num_connections: int,
        threads: ThreadPoolExecutor,
    ) -> None:
        host, port = listener.getsockname()
        self.peer = Peer(f"{host}:{port}")
        self._pool = pool
        self._listener = listener
        self._num_connections = num_connections
        self._threads = threads
        self._sockets: list[socket.socket] = []

    async def receive(self, move: Move, ready: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        if not self._sockets:  # the connections wait in the listener's backlog
            accepted = [self._listener.accept() for _ in range(self._num_connections)]
            self._sockets = [connection for connection, _ in accepted]
        ready.set()
        await asyncio.gather(
            *(
                loop.run_in_executor(self._threads, self._receive, connection)
                for connection in self._sockets
            )
        )
        self._sockets[0].sendall(_DONE)

    def close(self) -> None:
        for connection in self._sockets:
            with suppress(OSError):  # the sender has closed it already
                connection.shutdown(socket.SHUT_RDWR)  # a thread that still reads ends
            connection.close()

    def _receive(self, connection: socket.socket) -> None:
        header = bytearray(_HEADER.size)
        while True:
            _receive_all(connection, [memoryview(header)])
            first_page, num_pages = _HEADER.unpack(header)
            if not num_pages:
                return
            _receive_all(connection, self._pool.views(Extent(first_page, num_pages)))


def _send_all(connection: socket.socket, parts: list[memoryview]) -> None:
    while parts:
        parts = _rest(parts, connection.sendmsg(parts))


def _receive_all(connection: socket.socket, parts: list[memoryview]) -> None:
    while parts:
        num_bytes = connection.recvmsg_into(parts, 0, socket.MSG_WAITALL)[0]
        if not num_bytes:
            raise PeerUnavailable("the raw sender went away")
        parts = _rest(parts, num_bytes)


def _rest(parts: list[memoryview], num_bytes: int) -> list[memoryview]:
    """What is left of ``parts`` after their first bytes."""
    for i, part in enumerate(parts):
        if num_bytes < len(part):
            return [part[num_bytes:], *parts[i + 1 :]]
        num_bytes -= len(part)
    return []
