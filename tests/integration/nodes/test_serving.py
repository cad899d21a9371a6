"""A node's server from "ready" to "drained": what it says of itself, and what it waits for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from node_cluster import free_addresses
from pdcore.cluster import Epoch, NodeInfo, NodeLoad, NodeName, NodeRole, NodeView
from pdcore.drain import Drain
from pdcore.errors import ConfigError
from pdcore.kv_layout import KvLayout
from pdcore.metrics import NodeMetrics
from pdcore.node_server import Lasting, background, describe, serving
from pdcore.rpc import new_server, open_channel
from pdcore.settings import ClusterSettings, NodeSettings, QueueSettings, TlsSettings
from pdcore.status import StatusService
from pdcore.wire import status_from_proto
from pdwire.v1 import node_pb2, node_pb2_grpc

LAYOUT = KvLayout("m", 1, 1, 8, 16, "float32")
FOREVER_S = 3600.0


class State:
    pages_shared = 0

    def load(self) -> NodeLoad:
        return NodeLoad(pages_free=3)

    def peers(self) -> frozenset[tuple[NodeName, Epoch]]:
        return frozenset()


class Process:
    """A node without a model. ``drain_s`` is how long it waits for running requests."""

    def __init__(self, drain_s: float = FOREVER_S) -> None:
        bind, metrics = free_addresses(2)
        self.node = NodeSettings("d", NodeRole.DECODE, bind, metrics=metrics)
        self.settings = ClusterSettings(nodes=(self.node,), queue=QueueSettings(drain_s=drain_s))
        self.info: NodeInfo = describe(self.settings, self.node, LAYOUT, 64)
        self.drain = Drain("d")
        self.status = StatusService(self.info, State())

    @asynccontextmanager
    async def serving(self, *lasting: Lasting) -> AsyncIterator[None]:
        server = new_server()
        arguments = (self.status, self.drain, NodeMetrics(), self.settings, self.node)
        try:
            async with serving(server, *arguments, lasting=lasting):
                yield
        finally:
            await server.stop(None)

    def channel(self) -> grpc.aio.Channel:
        return open_channel(self.node.address, TlsSettings())


async def health(channel: grpc.aio.Channel) -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    return int((await stub.Check(health_pb2.HealthCheckRequest(service=""))).status)


async def test_it_says_what_it_is_and_that_it_serves() -> None:
    process = Process()
    async with process.serving(), process.channel() as channel:
        watch = node_pb2_grpc.NodeStub(channel).Watch(node_pb2.WatchRequest())
        view = status_from_proto(await watch.read())
        assert view == NodeView(process.info, NodeLoad(pages_free=3), frozenset())
        assert await health(channel) == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


async def test_it_drains_before_it_ends() -> None:
    process, stop = Process(), asyncio.Event()

    async def serve() -> None:
        async with process.serving():
            await stop.wait()

    async with asyncio.TaskGroup() as tasks, process.channel() as channel:
        with process.drain.request():
            served = tasks.create_task(serve())
            watch = node_pb2_grpc.NodeStub(channel).Watch(
                node_pb2.WatchRequest(), wait_for_ready=True
            )
            assert not (await watch.read()).draining
            stop.set()
            while not (await watch.read()).draining:
                pass
            assert await health(channel) == health_pb2.HealthCheckResponse.NOT_SERVING
            assert process.drain.num_running == 1 and not served.done()
        async with asyncio.timeout(10):
            await served


async def test_streams_that_last_end_after_the_drain_and_not_before() -> None:
    process, ended = Process(), []

    class Lived:
        def close(self) -> None:
            ended.append(process.drain.num_running)

    async with process.channel() as channel:
        async with asyncio.TaskGroup() as tasks, process.serving(Lived()):
            watch = node_pb2_grpc.NodeStub(channel).Watch(node_pb2.WatchRequest())
            await watch.read()
            tasks.create_task(one_more_step(process.drain))
            await asyncio.sleep(0)
        while await watch.read() is not grpc.aio.EOF:
            pass
    assert ended == [0]


async def one_more_step(drain: Drain) -> None:
    with drain.request():
        for _ in range(20):
            await asyncio.sleep(0)


async def test_what_does_not_end_in_time_is_cut() -> None:
    process = Process(drain_s=0.05)
    with process.drain.request():
        async with asyncio.timeout(10):
            async with process.serving():
                pass


async def test_a_node_that_failed_does_not_wait_for_what_it_cannot_finish() -> None:
    """Its loop is dead: the running requests would wait for ever, and their clients with them."""

    process, serves = Process(drain_s=FOREVER_S), asyncio.Event()

    async def fails() -> None:
        await serves.wait()
        raise ZeroDivisionError

    with process.drain.request(), pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(10) as limit, background(fails()), process.serving():
            serves.set()
            await asyncio.get_running_loop().create_future()
    assert caught.group_contains(ZeroDivisionError)
    assert not limit.expired()


async def test_a_port_that_is_taken_is_named() -> None:
    first, second = Process(), Process()
    second.node = replace(second.node, bind=first.node.bind)
    async with first.serving():
        with pytest.raises(ConfigError, match=f"d: cannot listen on {first.node.bind}"):
            async with second.serving():
                pass


async def test_a_metrics_port_that_is_taken_is_named() -> None:
    first, second = Process(), Process()
    second.node = replace(second.node, metrics=first.node.metrics)
    async with first.serving():
        with pytest.raises(ConfigError, match=f"metrics: cannot listen on {first.node.metrics}"):
            async with second.serving():
                pass
