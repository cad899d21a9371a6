"""One small round trip to a receiver, timed, and what its kernel says of receive buffers.

    pong = await ping(channel, within_s=5.0)

The time is that of the two event loops and the path together; of several, take the smallest.
"""

from dataclasses import dataclass
from time import monotonic

import grpc

from kvtransfer.framing import decode_ping_reply
from pdcore.errors import DeadlineExceeded, PeerUnavailable
from pdcore.rpc_errors import error_from_rpc

PING = "/pdwire.v1.KvTransfer/Ping"


@dataclass(frozen=True, slots=True)
class Pong:
    """``max_receive_buffer_bytes``: of one connection, at the receiver; None: it cannot tell."""

    rtt_s: float
    max_receive_buffer_bytes: int | None


async def ping(channel: grpc.aio.Channel, within_s: float) -> Pong:
    """Waits for the connection if there is none yet, and the time then holds that, too.

    Raises PeerUnavailable without an answer in time, ProtocolViolation for one that is no answer.
    """
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PING)
    started_s = monotonic()
    try:
        data = await call(b"", timeout=within_s, wait_for_ready=True)
    except grpc.aio.AioRpcError as error:
        named = error_from_rpc(error, "the receiver")
        if isinstance(named, DeadlineExceeded):
            raise PeerUnavailable(f"no answer to a ping within {within_s:g} s") from None
        raise named from error
    rtt_s = monotonic() - started_s
    return Pong(rtt_s, decode_ping_reply(data))
