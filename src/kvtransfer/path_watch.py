"""What a pair measures of its path while it lives: pings, and the kernel's view of its connections.

Both streams come at the pace of the path while there is something to learn (``busy`` is set):
about one a round trip; pings also once a second when there is not.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence, Sized
from contextlib import suppress
from itertools import count
from time import monotonic

import grpc

from kvtransfer.path import PathEstimator
from kvtransfer.ping import Pong, ping
from kvtransfer.tcp_info import Endpoint, TcpConnections, numeric
from kvtransfer.tcp_sample import TcpSample
from pdcore.errors import ConfigError, PdspanError
from pdcore.rpc import split_address

LEAST_SPACING_S = 0.02
SHORT_RTT_S = 0.005  # a path below it changes little, and a ping costs both ends their time
SHORT_SPACING_S = 0.05
IDLE_SPACING_S = 1.0
FIRST_PINGS = 5
ANSWER_S = 5.0
SAMPLE_SPACING_S = 0.1
FIND_SPACING_S = 1.0


async def pings(channel: grpc.aio.Channel, busy: asyncio.Event) -> AsyncIterator[Pong]:
    """One at a time, the next as soon as the last has come back, but not more often than every
    20 ms (50 on a short path); also the first few. Ends when one is not answered."""
    for number in count(1):
        started_s = monotonic()
        try:
            pong = await ping(channel, ANSWER_S)
        except PdspanError:
            return
        yield pong
        spacing_s = SHORT_SPACING_S if pong.rtt_s < SHORT_RTT_S else LEAST_SPACING_S
        await asyncio.sleep(spacing_s - (monotonic() - started_s))
        if number >= FIRST_PINGS:
            await _when_busy(busy, within_s=IDLE_SPACING_S)


async def tcp_samples(
    address: str, pages: Sized, busy: asyncio.Event, path: PathEstimator
) -> AsyncIterator[Sequence[TcpSample]]:
    """Of this process's connections to ``address``: those that carry ``pages``, and one more.

    Nothing, once, when connections came or went: the samples around it are not to be compared.
    """
    connections = TcpConnections()
    found_s, num_changes = -FIND_SPACING_S, 0
    while True:
        await busy.wait()
        samples = connections.samples()
        if len(connections) <= len(pages) and monotonic() - found_s >= FIND_SPACING_S:
            connections.find(await _endpoints(address))
            found_s = monotonic()
            samples = connections.samples()
        if connections.num_changes != num_changes:
            num_changes = connections.num_changes
            yield ()
        yield samples
        await asyncio.sleep(max(SAMPLE_SPACING_S, path.rtt_s or 0.0))


async def _when_busy(busy: asyncio.Event, *, within_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await busy.wait()


async def _endpoints(address: str) -> frozenset[Endpoint]:
    """What the name of the host stands for now; nothing for what only gRPC understands."""
    try:
        host, port = split_address(address)
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, ConfigError):
        return frozenset()
    return frozenset((numeric(str(entry[4][0])), port) for entry in found)
