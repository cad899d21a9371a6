"""A prefill node as a process: load the model, connect to the decode nodes, serve until told to
stop."""

import asyncio
from pathlib import Path

from kvtransfer.channels import Pairs
from kvtransfer.messages import Identity
from kvtransfer.trace import tracing
from pdcore.cluster import Epoch, NodeLoad, NodeName, NodeRole
from pdcore.compute import ComputeThread
from pdcore.discovery import open_discovery
from pdcore.drain import Drain
from pdcore.metrics import NodeMetrics
from pdcore.node_server import background, describe, serving
from pdcore.rpc import new_server
from pdcore.settings import ClusterSettings, NodeSettings
from pdcore.status import StatusService
from pdengine.loading import load_engine, node_load
from pdengine.page_pool import PagePool
from pdwire.v1 import prefill_pb2_grpc
from prefill_node.service import PrefillService
from prefill_node.worker import PrefillWorker


class PrefillState:
    """What the cluster sees of this node while it changes."""

    def __init__(self, pool: PagePool, worker: PrefillWorker, pairs: Pairs) -> None:
        self._pool = pool
        self._worker = worker
        self._pairs = pairs

    def load(self) -> NodeLoad:
        return node_load(
            self._pool,
            num_queued=self._worker.num_queued,
            num_running=self._worker.num_running,
            num_transferring=self._worker.num_sending,
        )

    @property
    def pages_shared(self) -> int:
        return self._pool.counts().shared

    def peers(self) -> frozenset[tuple[NodeName, Epoch]]:
        return self._pairs.peers


async def serve(
    settings: ClusterSettings, node: NodeSettings, model_dir: Path, stop: asyncio.Event
) -> None:
    """Run the node until ``stop`` is set and it has drained. Raises ConfigError at start."""
    with ComputeThread() as compute, tracing(settings.transfer.trace):
        engine = await load_engine(model_dir, node.engine, compute)
        info = describe(settings, node, engine.layout, engine.max_tokens)
        metrics = NodeMetrics()
        worker = PrefillWorker(engine, compute, node.engine, settings.queue, metrics)
        identity = Identity(info.name, info.epoch)
        async with Pairs(identity, engine.layout, settings.transfer, settings.tls) as pairs:
            state = PrefillState(engine.pool, worker, pairs)
            metrics.show_load(state)
            metrics.show_pairs(pairs)
            drain = Drain(node.name)
            service = PrefillService(info, engine, worker, pairs, settings.transfer, drain, metrics)
            server = new_server()
            prefill_pb2_grpc.add_PrefillServicer_to_server(service, server)  # type: ignore[no-untyped-call]
            status = StatusService(info, state)
            async with (
                background(worker.run(), _follow(pairs, settings), _publish(pairs, status)),
                serving(server, status, drain, metrics, settings, node),
            ):
                await stop.wait()


async def _follow(pairs: Pairs, settings: ClusterSettings) -> None:
    """Open a pair to each decode node as soon as discovery knows it; close those that are gone."""
    known: set[str] = set()
    async for snapshot in open_discovery(settings).watch():
        current = {point.address for point in snapshot if point.role is NodeRole.DECODE}
        for address in current - known:
            pairs.open(address)
        for address in known - current:
            pairs.forget(address)
        known = current


async def _publish(pairs: Pairs, status: StatusService) -> None:
    """Placement learns at once that a pair came or went."""
    async for _ in pairs.watch_changes():
        status.changed()
