"""The gRPC server of a prefill or decode node, from "ready" to "drained".

Order at the end: say that the node drains, wait for running requests (bounded; not at all when the
node failed), then close what still runs. Whatever a cut request held is given back by its own
``finally``.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import grpc

from pdcore.cluster import NodeInfo, NodeName, new_epoch
from pdcore.drain import Drain
from pdcore.kv_layout import KvLayout
from pdcore.metrics import NodeMetrics
from pdcore.rpc import bind_server
from pdcore.settings import ClusterSettings, NodeSettings
from pdcore.status import StatusService
from pdcore.version import __version__

log = logging.getLogger(__name__)

CLOSE_S = 1.0  # how long the calls that are cut may take to clean up


class Lasting(Protocol):
    def close(self) -> None: ...


def describe(
    settings: ClusterSettings, node: NodeSettings, layout: KvLayout, max_tokens: int
) -> NodeInfo:
    """A new life of ``node``: it gets a new epoch."""
    return NodeInfo(
        name=NodeName(node.name),
        role=node.role,
        address=node.address,
        epoch=new_epoch(),
        layout=layout,
        model=settings.model.public_name,
        max_tokens=max_tokens,
        version=__version__,
    )


@asynccontextmanager
async def serving(
    server: grpc.aio.Server,
    status: StatusService,
    drain: Drain,
    metrics: NodeMetrics,
    settings: ClusterSettings,
    node: NodeSettings,
    lasting: Sequence[Lasting] = (),
) -> AsyncIterator[None]:
    """Serve while the block runs. ``server`` has its services added already.

    ``lasting`` services have streams that live as long as the node; they end once it has drained.
    """
    status.add_to(server)
    bind_server(server, node, settings.tls)
    if node.metrics is not None:
        metrics.serve(node.metrics, settings.tls)
    await server.start()
    await status.serving()
    log.info("ready on %s", node.bind, extra={"event": "ready", "address": node.address})
    drain_s = 0.0  # a node that failed could not finish what runs
    try:
        yield
        drain_s = settings.queue.drain_s
    finally:
        await status.drain()
        if not await drain.finish(drain_s):
            log.warning("%d requests still ran and were cut", drain.num_running)
        for service in (*lasting, status):
            service.close()
        await server.stop(CLOSE_S)
        log.info("stopped", extra={"event": "stopped"})


@asynccontextmanager
async def background(*coroutines: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Run endless coroutines while the block runs; one that fails ends the block with its error."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(coroutine) for coroutine in coroutines]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
