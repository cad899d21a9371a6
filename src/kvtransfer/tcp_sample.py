"""What the kernel says of one TCP connection (Linux: ``TCP_INFO``), as far as a policy asks.

Times and byte counts run since the connection was made; two samples of one connection are compared
by their differences. No I/O: reading it is ``tcp_info``'s.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TcpSample:
    """``busy_s``: time with data sent or waiting to be. Of it, ``sndbuf_limited_s`` and
    ``rwnd_limited_s`` were spent because the send buffer or the receiver's window was full.
    ``notsent_bytes``: in the send buffer, not on the way yet.
    """

    rtt_s: float
    min_rtt_s: float
    busy_s: float
    sndbuf_limited_s: float
    rwnd_limited_s: float
    bytes_acked: int
    bytes_retransmitted: int
    notsent_bytes: int
