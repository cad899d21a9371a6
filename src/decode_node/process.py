"""A decode node as a process: load the model, join the cluster, serve until told to stop."""

import asyncio
from pathlib import Path

from decode_node.loop import DecodeLoop
from decode_node.reservations import ADMISSIONS
from decode_node.service import DecodeService
from kvtransfer.messages import Identity
from kvtransfer.receiver import KvReceiver
from pdcore.cluster import Epoch, NodeLoad, NodeName
from pdcore.compute import ComputeThread
from pdcore.drain import Drain
from pdcore.metrics import NodeMetrics
from pdcore.node_server import background, describe, serving
from pdcore.rpc import new_server
from pdcore.settings import ClusterSettings, NodeSettings
from pdcore.status import StatusService
from pdengine.loading import load_engine, node_load
from pdengine.page_pool import PagePool
from pdwire.v1 import decode_pb2_grpc


class DecodeState:
    """What the cluster sees of this node while it changes."""

    def __init__(self, pool: PagePool, loop: DecodeLoop, service: DecodeService) -> None:
        self._pool = pool
        self._loop = loop
        self._service = service

    def load(self) -> NodeLoad:
        return node_load(
            self._pool,
            num_queued=self._loop.num_preempted,
            num_running=self._loop.num_running,
            num_transferring=self._service.num_receiving,
        )

    @property
    def pages_shared(self) -> int:
        return self._pool.counts().shared

    def peers(self) -> frozenset[tuple[NodeName, Epoch]]:
        return frozenset()


async def serve(
    settings: ClusterSettings, node: NodeSettings, model_dir: Path, stop: asyncio.Event
) -> None:
    """Run the node until ``stop`` is set and it has drained. Raises ConfigError at start."""
    with ComputeThread() as compute:
        engine = await load_engine(model_dir, node.engine, compute)
        info = describe(settings, node, engine.layout, engine.max_tokens)
        metrics = NodeMetrics()
        loop = DecodeLoop(engine, compute, node.engine, metrics)
        drain = Drain(node.name)
        identity = Identity(info.name, info.epoch)
        receiver = KvReceiver(identity, engine.layout, engine.kv, settings.transfer)
        server = new_server()
        receiver.add_to(server)
        admission = ADMISSIONS[node.engine.admission]
        service = DecodeService(info, engine, loop, receiver, drain, metrics, admission)
        decode_pb2_grpc.add_DecodeServicer_to_server(service, server)  # type: ignore[no-untyped-call]
        state = DecodeState(engine.pool, loop, service)
        metrics.show_load(state)
        metrics.show_kv_use(loop.kv_use)
        status = StatusService(info, state)
        async with (
            background(loop.run()),
            serving(server, status, drain, metrics, settings, node, lasting=[receiver]),
        ):
            await stop.wait()
