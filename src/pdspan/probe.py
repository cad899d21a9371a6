"""Measures the path to one decode node: who is there, round trips, and the rate of its connections.

    measured = await measure(address, tls, effort, progress.report)

Sends bytes that mean nothing (``Warm``), within the effort's bounds, on connections of its own. The
node serves requests meanwhile; what runs on the path slows down both.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from statistics import median

import grpc
import httpx

from kvtransfer.kernel_tcp import congestion_control, max_send_buffer_bytes, slow_start_after_idle
from kvtransfer.path_advice import TcpLimits, with_samples
from kvtransfer.path_prediction import ProbedPath
from kvtransfer.ping import Pong, ping
from kvtransfer.rate_rounds import RateRounds
from kvtransfer.tcp_info import TcpConnections, numeric
from kvtransfer.tcp_sample import TcpSample
from kvtransfer.warm_path import WarmUp
from pdcore.cluster import NodeInfo, NodeRole
from pdcore.errors import ConfigError, NoCapacity, PdspanError, PeerUnavailable, root_cause
from pdcore.rpc import open_channel, split_address
from pdcore.settings import TlsSettings
from pdcore.wire import status_from_proto
from pdwire.v1 import node_pb2, node_pb2_grpc

ANSWER_S = 5.0  # how long anything may take to answer
NUM_PINGS = 20
PINGS_S = 3.0  # fewer pings where they would take longer
TICK_S = 0.1
# On a shorter path the two programs decide how much must be in flight, not the path.
LEAST_RTT_S = 0.02

Report = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """Bounds of each of the two rate measurements; ``rate_bytes_per_s``: taken instead of any."""

    seconds: float
    max_bytes: int
    num_connections: int
    rate_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rate:
    """``is_full``: it no longer grew when the measurement ended; else the path may carry more.

    ``sent_bytes`` 0: it was given, not measured.
    """

    num_connections: int
    bytes_per_s: float
    sent_bytes: int
    is_full: bool


@dataclass(frozen=True, slots=True)
class Measured:
    node: NodeInfo
    rtt_min_s: float
    rtt_median_s: float
    num_pings: int
    one: Rate
    several: Rate
    limits: TcpLimits

    @property
    def path(self) -> ProbedPath:
        return ProbedPath(
            rtt_s=self.rtt_min_s,
            one_bytes_per_s=self.one.bytes_per_s,
            all_bytes_per_s=max(self.one.bytes_per_s, self.several.bytes_per_s),
            send_buffer_bytes=self.limits.send_buffer_bytes,
        )


async def measure(address: str, tls: TlsSettings, effort: Effort, report: Report) -> Measured:
    """Raises PeerUnavailable, ConfigError when something else than a decode node answers there, or
    the node's refusal by name."""
    split_address(address)
    async with _channels(address, tls, effort.num_connections) as channels:
        node = await _decode_node(channels[0], address, tls)
        pongs = await _pings(channels[0], address, report)
        rtt_s = min(pong.rtt_s for pong in pongs)
        one = await _rate(channels[:1], rtt_s, effort, report)
        await asyncio.gather(*(ping(channel, ANSWER_S) for channel in channels))  # all connected
        several = await _rate(channels, rtt_s, effort, report)
        limits = with_samples(_limits(pongs[-1]), await _tcp_samples(address))
    return Measured(
        node=node,
        rtt_min_s=rtt_s,
        rtt_median_s=median(pong.rtt_s for pong in pongs),
        num_pings=len(pongs),
        one=one,
        several=several,
        limits=limits,
    )


def _limits(pong: Pong) -> TcpLimits:
    return TcpLimits(
        send_buffer_bytes=max_send_buffer_bytes(),
        receive_buffer_bytes=pong.max_receive_buffer_bytes,
        congestion=congestion_control(),
        slow_start_after_idle=slow_start_after_idle(),
    )


async def _tcp_samples(address: str) -> tuple[TcpSample, ...]:
    """Of all connections to ``address`` that are open: those of this measurement."""
    host, port = split_address(address)
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    connections = TcpConnections()
    connections.find(frozenset((numeric(str(entry[4][0])), port) for entry in found))
    return connections.samples()


@asynccontextmanager
async def _channels(
    address: str, tls: TlsSettings, count: int
) -> AsyncIterator[list[grpc.aio.Channel]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_channel(address, tls)) for _ in range(count)]


async def _decode_node(channel: grpc.aio.Channel, address: str, tls: TlsSettings) -> NodeInfo:
    watch = node_pb2_grpc.NodeStub(channel).Watch(node_pb2.WatchRequest(), timeout=ANSWER_S)  # type: ignore[no-untyped-call]
    try:
        status = await watch.read()
    except grpc.aio.AioRpcError as error:
        raise await _who_is_there(address, tls, error) from None
    finally:
        watch.cancel()
    if status is grpc.aio.EOF:
        raise PeerUnavailable(f"{address} is stopping")
    info = status_from_proto(status).info
    if info.role is not NodeRole.DECODE:
        raise ConfigError(
            f"{address} is the {info.role} node {info.name}: give the address of a decode node"
        )
    return info


async def _who_is_there(address: str, tls: TlsSettings, error: grpc.aio.AioRpcError) -> PdspanError:
    """Why ``Watch`` was not answered, in one line."""
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return ConfigError(f"{address} is a gRPC server, but no node of pdspan")
    if not await _accepts(address):
        return PeerUnavailable(f"nothing answers at {address} within {ANSWER_S:g} s")
    for scheme in ("http", "https"):
        if await _answers_http(f"{scheme}://{address}/health"):
            return ConfigError(
                f"{address} speaks HTTP, as a router does: give the gRPC address of a decode node"
            )
    if tls.ca is None:
        return PeerUnavailable(
            f"something listens at {address}, but not for plain gRPC: if it speaks TLS, say --ca"
            " FILE or --cluster FILE"
        )
    return PeerUnavailable(f"{address} does not answer over TLS: {error.details()}")


async def _answers_http(url: str) -> bool:
    """Whoever it is: no certificate is checked, and nothing of the answer is used."""
    try:
        async with httpx.AsyncClient(verify=False, trust_env=False, timeout=ANSWER_S) as client:
            await client.get(url)
    except httpx.HTTPError:
        return False
    return True


async def _accepts(address: str) -> bool:
    host, port = split_address(address)
    try:
        async with asyncio.timeout(ANSWER_S):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


async def _pings(channel: grpc.aio.Channel, address: str, report: Report) -> list[Pong]:
    task = f"round trips to {address}"
    await ping(channel, ANSWER_S)  # the first one pays for what is done once
    pongs: list[Pong] = []
    spent_s = 0.0
    while len(pongs) < NUM_PINGS and spent_s < PINGS_S:
        report(task, len(pongs) / NUM_PINGS)
        pongs.append(await ping(channel, ANSWER_S))
        spent_s += pongs[-1].rtt_s
    report(task, 1.0)
    return pongs


async def _rate(
    channels: Sequence[grpc.aio.Channel], rtt_s: float, effort: Effort, report: Report
) -> Rate:
    """Until the rate no longer grows, or the effort is spent."""
    if effort.rate_bytes_per_s is not None:
        return Rate(len(channels), effort.rate_bytes_per_s, sent_bytes=0, is_full=True)
    warm_up = WarmUp(
        channels,
        rtt_s=max(rtt_s, LEAST_RTT_S),
        max_bytes=effort.max_bytes,
        rounds=RateRounds,
    )
    task = f"rate of {len(channels)} connection{'s' if len(channels) > 1 else ''}"

    async def show() -> None:
        while True:
            report(task, min(0.99, warm_up.sent_bytes / effort.max_bytes))
            await asyncio.sleep(TICK_S)

    try:
        async with asyncio.TaskGroup() as tasks:
            shown = tasks.create_task(show())
            try:
                async with asyncio.timeout(effort.seconds):
                    await warm_up.run()
            except TimeoutError:
                pass
            except NoCapacity:  # the node takes no more for now
                if not warm_up.rate_bytes_per_s:
                    raise
            shown.cancel()
    except BaseExceptionGroup as group:
        raise root_cause(group) from group
    report(task, 1.0)
    if not warm_up.rate_bytes_per_s:
        raise PeerUnavailable(
            f"nothing that was sent came to be acknowledged within {effort.seconds:g} s"
        )
    return Rate(len(channels), warm_up.rate_bytes_per_s, warm_up.sent_bytes, warm_up.is_warm)
