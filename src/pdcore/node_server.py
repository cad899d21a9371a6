"""The gRPC server of a prefill or decode node, from "ready" to "drained".

Order at the end: say that the node drains, wait for running requests (bounded), then close what
still runs. Whatever a cut request held is given back by its own ``finally``.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from pdcore.drain import Drain
from pdcore.metrics import NodeMetrics
from pdcore.rpc import bind_server
from pdcore.settings import ClusterSettings, NodeSettings
from pdcore.status import StatusService

log = logging.getLogger(__name__)

CLOSE_S = 1.0  # how long the calls that are cut may take to clean up


@asynccontextmanager
async def serving(
    server: grpc.aio.Server,
    status: StatusService,
    drain: Drain,
    metrics: NodeMetrics,
    settings: ClusterSettings,
    node: NodeSettings,
) -> AsyncIterator[None]:
    """Serve while the block runs. ``server`` has its services added already."""
    status.add_to(server)
    bind_server(server, node, settings.tls)
    if node.metrics is not None:
        metrics.serve(node.metrics, settings.tls)
    await server.start()
    await status.serving()
    log.info("ready on %s", node.bind, extra={"event": "ready", "address": node.address})
    try:
        yield
    finally:
        await status.drain()
        if not await drain.finish(settings.queue.drain_s):
            log.warning("%d requests still ran and were cut", drain.num_running)
        await server.stop(CLOSE_S)
        log.info("stopped", extra={"event": "stopped"})
