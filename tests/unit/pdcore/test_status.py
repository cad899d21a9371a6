"""``Watch``: the first status at once, the next one on a change, and a heartbeat in between."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grpc_health.v1 import health_pb2

from pdcore import status
from pdcore.cluster import Epoch, NodeInfo, NodeLoad, NodeName, NodeRole, NodeView
from pdcore.kv_layout import KvLayout
from pdcore.status import StatusService
from pdcore.wire import status_from_proto
from pdwire.v1 import node_pb2

LAYOUT = KvLayout("m", 1, 1, 8, 16, "float32")
INFO = NodeInfo(NodeName("n"), NodeRole.DECODE, "n:7000", Epoch(7), LAYOUT, "m", 64, "0.1")
PEERS = frozenset({(NodeName("d"), Epoch(3))})


class Node:
    num_running = 0

    def load(self) -> NodeLoad:
        return NodeLoad(num_running=self.num_running, pages_free=4)

    def peers(self) -> frozenset[tuple[NodeName, Epoch]]:
        return PEERS


class Watcher:
    """A ``Watch`` call without a network."""

    def __init__(self) -> None:
        self.seen: asyncio.Queue[NodeView] = asyncio.Queue()

    async def write(self, message: node_pb2.NodeStatus) -> None:
        self.seen.put_nowait(status_from_proto(message))

    @asynccontextmanager
    async def watching(self, service: StatusService) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(service.Watch(node_pb2.WatchRequest(), self))  # type: ignore[arg-type]
            yield
            task.cancel()

    async def next(self) -> NodeView:
        return await asyncio.wait_for(self.seen.get(), 10)


async def test_the_first_status_comes_at_once_and_is_the_whole_view() -> None:
    service, watcher = StatusService(INFO, Node()), Watcher()
    async with watcher.watching(service):
        assert await watcher.next() == NodeView(INFO, NodeLoad(pages_free=4), PEERS, draining=False)


async def test_a_change_is_told_to_every_watcher(monkeypatch) -> None:
    monkeypatch.setattr(status, "HEARTBEAT_S", 3600)
    node = Node()
    service, watchers = StatusService(INFO, node), [Watcher(), Watcher()]
    async with watchers[0].watching(service), watchers[1].watching(service):
        for watcher in watchers:
            await watcher.next()
        node.num_running = 5
        service.changed()
        for watcher in watchers:
            assert (await watcher.next()).load.num_running == 5


async def test_a_change_while_a_watcher_writes_is_not_lost(monkeypatch) -> None:
    monkeypatch.setattr(status, "HEARTBEAT_S", 3600)
    node = Node()
    service, watcher = StatusService(INFO, node), Watcher()
    let_go = asyncio.Event()

    async def write_slowly(message: node_pb2.NodeStatus) -> None:
        await let_go.wait()
        watcher.seen.put_nowait(status_from_proto(message))

    watcher.write = write_slowly  # type: ignore[method-assign]
    async with watcher.watching(service):
        await asyncio.sleep(0)
        node.num_running = 5
        service.changed()
        let_go.set()
        assert (await watcher.next()).load.num_running == 0
        assert (await watcher.next()).load.num_running == 5


async def test_without_a_change_the_heartbeat_goes_on(monkeypatch) -> None:
    monkeypatch.setattr(status, "HEARTBEAT_S", 0)
    watcher = Watcher()
    async with watcher.watching(StatusService(INFO, Node())):
        for _ in range(3):
            await watcher.next()


async def test_a_drain_is_told_at_once_and_health_says_no(monkeypatch) -> None:
    monkeypatch.setattr(status, "HEARTBEAT_S", 3600)
    service, watcher = StatusService(INFO, Node()), Watcher()
    await service.serving()
    assert await health(service) == health_pb2.HealthCheckResponse.SERVING
    async with watcher.watching(service):
        assert not (await watcher.next()).draining
        await service.drain()
        assert (await watcher.next()).draining
    assert await health(service) == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_closing_ends_every_watch(monkeypatch) -> None:
    monkeypatch.setattr(status, "HEARTBEAT_S", 3600)
    service, watcher = StatusService(INFO, Node()), Watcher()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(service.Watch(node_pb2.WatchRequest(), watcher))  # type: ignore[arg-type]
        await watcher.next()
        service.close()


async def health(service: StatusService) -> int:
    response = await service._health.Check(health_pb2.HealthCheckRequest(service=""), None)
    return response.status
