"""What a node tells the cluster about itself: ``Node.Watch``, and the standard gRPC health service.

The watcher gets a status at once, another whenever ``changed()`` was called, and one at least every
``HEARTBEAT_S``: silence longer than that means that the node is stopped or cut off.
"""

import asyncio
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from pdcore.cluster import Epoch, NodeInfo, NodeLoad, NodeName, NodeView
from pdcore.wire import status_to_proto
from pdwire.v1 import node_pb2, node_pb2_grpc

HEARTBEAT_S = 0.5


class NodeState(Protocol):
    """The part of a node that changes; reads must be cheap and never block."""

    def load(self) -> NodeLoad: ...
    def peers(self) -> frozenset[tuple[NodeName, Epoch]]: ...


class StatusService:
    """Serves ``Node.Watch`` and health for one node."""

    def __init__(self, info: NodeInfo, state: NodeState) -> None:
        self._info = info
        self._state = state
        self._draining = False
        self._closed = False
        self._next_change = asyncio.Event()
        self._health = HealthServicer()

    def add_to(self, server: grpc.aio.Server) -> None:
        node_pb2_grpc.add_NodeServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)

    async def serving(self) -> None:
        """Say that the node takes work."""
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    async def drain(self) -> None:
        """Say that the node takes no new work; everything that runs goes on."""
        self._draining = True
        self.changed()
        await self._health.enter_graceful_shutdown()

    def close(self) -> None:
        """End every Watch: the node is about to stop."""
        self._closed = True
        self.changed()

    def changed(self) -> None:
        """Wake every watcher: something that placement depends on is different."""
        self._next_change.set()
        self._next_change = asyncio.Event()

    def view(self) -> NodeView:
        return NodeView(self._info, self._state.load(), self._state.peers(), self._draining)

    async def Watch(
        self,
        request: node_pb2.WatchRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        while not self._closed:
            change = self._next_change
            await context.write(status_to_proto(self.view()))
            try:
                await asyncio.wait_for(change.wait(), HEARTBEAT_S)
            except TimeoutError:
                continue
