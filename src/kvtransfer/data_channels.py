"""The connections of one pair that carry pages, and the ``Push`` streams on them.

Opened as they are needed, kept until the pair closes. A stream goes to the connection with the
fewest bytes in flight, and never beside another of its own transfer while there is a choice: so a
transfer's stripes are connections, and a small transfer does not stand behind a large one when it
need not.
"""

import asyncio

import grpc

from kvtransfer.changes import raise_if_cancelled
from kvtransfer.framing import decode_reply
from kvtransfer.messages import Reply
from kvtransfer.stream_errors import what_ended
from pdcore.errors import PeerUnavailable
from pdcore.generation import TransferId
from pdcore.rpc import channel_credentials, channel_to
from pdcore.settings import MAX_STRIPES, TlsSettings

PUSH = "/pdwire.v1.KvTransfer/Push"

PushCall = grpc.aio.StreamStreamCall[bytes, bytes]


class Dialer:
    """Opens connections to one address. Raises ConfigError when it is made, not later."""

    def __init__(self, address: str, tls: TlsSettings) -> None:
        self.address = address
        self._credentials = channel_credentials(tls)

    def dial(self) -> grpc.aio.Channel:
        """It connects when first used, or told to, and again by itself."""
        return channel_to(self.address, self._credentials)


class DataChannels:
    def __init__(self, dialer: Dialer) -> None:
        self.address = dialer.address
        self._dialer = dialer
        self._connections: list[_Connection] = []

    def __len__(self) -> int:
        return len(self._connections)

    def first(self, num: int) -> list[grpc.aio.Channel]:
        """The oldest ``num``, opened if they are not yet."""
        self.open(num)
        return [connection.channel for connection in self._connections[:num]]

    def open(self, num: int) -> None:
        """Have at least ``num`` connections, and let all that are not connected try now."""
        while len(self._connections) < min(num, MAX_STRIPES):
            self._connections.append(_Connection(self._dialer.dial()))
        for connection in self._connections:
            connection.channel.get_state(try_to_connect=True)

    def open_push(self, transfer_id: TransferId, peer: str) -> "PushStream":
        """Waits for its connection, should that be in the making; ``peer`` is for messages."""
        return PushStream(self._choose(transfer_id), transfer_id, peer)

    async def close(self) -> None:
        """Cut everything."""
        for connection in self._connections:
            await connection.channel.close()

    def _choose(self, transfer_id: TransferId) -> "_Connection":
        free = [other for other in self._connections if not other.serves(transfer_id)]
        if not free:
            self.open(len(self._connections) + 1)
            free = [other for other in self._connections if not other.serves(transfer_id)]
        return min(free or self._connections, key=_Connection.load)


class _Connection:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.streams: set[PushStream] = set()

    def serves(self, transfer_id: TransferId) -> bool:
        return any(stream.transfer_id == transfer_id for stream in self.streams)

    def load(self) -> tuple[bool, int, int]:
        """Less is better: connected, then bytes in flight, then streams."""
        is_down = self.channel.get_state() is not grpc.ChannelConnectivity.READY
        in_flight_bytes = sum(stream.in_flight_bytes for stream in self.streams)
        return is_down, in_flight_bytes, len(self.streams)


class PushStream:
    """One stream; ``close`` it, whatever happens."""

    def __init__(self, connection: _Connection, transfer_id: TransferId, peer: str) -> None:
        self.transfer_id = transfer_id
        self.in_flight_bytes = 0
        self._peer = peer
        self._acked_bytes = 0
        self._connection = connection
        self._connection.streams.add(self)
        self._call: PushCall = connection.channel.stream_stream(PUSH)(wait_for_ready=True)

    async def write(self, message: bytes, num_page_bytes: int = 0) -> None:
        """``num_page_bytes``: how many of page data it holds. Raises what gRPC raises."""
        self.in_flight_bytes += num_page_bytes
        await self._call.write(message)

    async def read(self) -> Reply | None:
        """The next reply; None at the end. Raises what ended the stream before.

        gRPC reports a channel that was closed under a stream as a cancellation.
        """
        try:
            data = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise what_ended(error, self._peer) from error
        except asyncio.CancelledError:
            raise_if_cancelled()
            raise PeerUnavailable(f"the pair with {self._peer} was closed") from None
        if not isinstance(data, bytes):
            return None
        reply = decode_reply(data)
        self.in_flight_bytes -= reply.acked_bytes - self._acked_bytes
        self._acked_bytes = reply.acked_bytes
        return reply

    def close(self) -> None:
        self._call.cancel()
        self._connection.streams.discard(self)
