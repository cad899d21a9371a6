"""What ended a stream between two nodes: a name that the other end gave, or the transport.

gRPC reports a write that failed, and a connection that broke, with several codes; a stream that
ended without a name of ours was broken, whatever the code.
"""

import grpc

from pdcore.errors import PdspanError, PeerUnavailable
from pdcore.rpc_errors import ERROR_KEY, error_from_rpc

_BROKEN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)


def what_ended(error: grpc.aio.AioRpcError, peer: str) -> PdspanError:
    """The error named by ``peer``; PeerUnavailable for a stream that broke.

    A write that fails first hides the name. Then the next stream is refused with it.
    """
    named = error_from_rpc(error, peer)
    if error.code() in _BROKEN and ERROR_KEY not in dict(error.trailing_metadata() or ()):
        return PeerUnavailable(named.message)
    return named
