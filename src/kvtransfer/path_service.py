"""``Ping`` and ``Warm`` of a receiver: what a sender needs to know its path and to warm it.

Neither knows transfers or pages. A warm-up costs the receiver what it takes to read and drop bytes;
``WarmBudget`` bounds how many, and a node that drains takes none.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from time import monotonic

import grpc

from kvtransfer.framing import decode_warm, encode_ping_reply, encode_warm_reply
from kvtransfer.kernel_tcp import max_receive_buffer_bytes
from kvtransfer.warm_budget import WarmBudget
from pdcore.cluster import NodeName
from pdcore.errors import NoCapacity, NodeDraining, ProtocolViolation
from pdcore.rpc_errors import aborting
from pdcore.settings import TransferSettings

IDLE_S = 5.0  # a Warm stream on which nothing comes for so long ends

Context = grpc.aio.ServicerContext[bytes, bytes]


class PathService:
    def __init__(self, node: NodeName, settings: TransferSettings) -> None:
        self._node = node
        self._budget = WarmBudget(settings.accept_warmup_bytes)
        self._reads: set[asyncio.Timeout] = set()
        self._is_closed = False

    async def ping(self, _: bytes, __: Context) -> bytes:
        return encode_ping_reply(max_receive_buffer_bytes())

    async def warm(self, _: AsyncIterator[bytes], context: Context) -> None:
        async with aborting(context):
            num_received = 0
            while (data := await self._next_message(context)) is not None:
                num_received += self._take(context.peer(), data)
                await context.write(encode_warm_reply(num_received))

    def close(self) -> None:
        """The node drains: streams end by name, new ones are refused."""
        self._is_closed = True
        for read in self._reads:
            if not read.expired():
                read.reschedule(0.0)

    async def _next_message(self, context: Context) -> bytes | None:
        """None at the end of the stream."""
        self._check_open()
        data: object = None
        try:
            async with asyncio.timeout(IDLE_S) as read:
                with self._ended_by_close(read):
                    data = await context.read()
        except TimeoutError:
            self._check_open()
            raise ProtocolViolation(f"a Warm stream carried nothing for {IDLE_S:g} s") from None
        return data if isinstance(data, bytes) else None

    @contextmanager
    def _ended_by_close(self, read: asyncio.Timeout) -> Iterator[None]:
        self._reads.add(read)
        try:
            yield
        finally:
            self._reads.remove(read)

    def _check_open(self) -> None:
        if self._is_closed:
            raise NodeDraining(f"{self._node} is stopping")

    def _take(self, connection: str, data: bytes) -> int:
        nbytes = decode_warm(data)
        if not self._budget.take(connection, nbytes, now=monotonic()):
            raise NoCapacity(f"{self._node} takes no more warm-up bytes for now")
        return nbytes
