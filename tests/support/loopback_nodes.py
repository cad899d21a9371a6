"""A decode and a prefill node in this process, on loopback gRPC, with an engine without a model.

Everything but the engine is real: services, loop and worker, compute thread, transfer. So a test
sees the pools, and knows every token and every byte of KV in advance.
"""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from decode_node.loop import DecodeLoop
from decode_node.reservations import ADMISSIONS
from decode_node.service import DecodeService
from fake_engine import FakeEngine
from kvtransfer.channels import Pairs
from kvtransfer.messages import Identity
from kvtransfer.receiver import KvReceiver
from pdcore.cluster import Epoch, NodeInfo, NodeName, NodeRole
from pdcore.compute import ComputeThread
from pdcore.drain import Drain
from pdcore.generation import FinishReason, GenerationRequest
from pdcore.metrics import NodeMetrics
from pdcore.node_server import background
from pdcore.rpc import new_server, open_channel
from pdcore.settings import EngineSettings, QueueSettings, TlsSettings, TransferSettings
from pdcore.wire import delta_from_proto, request_to_proto
from pdwire.v1 import decode_pb2, decode_pb2_grpc, prefill_pb2, prefill_pb2_grpc
from pdwire.v1.generation_pb2 import Usage
from prefill_node.service import PrefillService
from prefill_node.worker import PrefillWorker

Command = decode_pb2.GenerateCommand
EPOCHS = {"decode": Epoch(11), "prefill": Epoch(22)}


class HeldCompute(ComputeThread):
    """A compute thread whose steps wait, once ``hold`` was called, until ``let_go``."""

    def __init__(self) -> None:
        super().__init__()
        self.in_step = asyncio.Event()
        self._changed = threading.Condition()
        self._num_allowed: float = math.inf

    def hold(self, after: int = 0) -> None:
        """Let ``after`` more steps pass, and none after them."""
        self._allow(after)
        self.in_step.clear()

    def let_go(self) -> None:
        self._allow(math.inf)

    def _allow(self, num_steps: float) -> None:
        with self._changed:
            self._num_allowed = num_steps
            self._changed.notify_all()

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.in_step.set()
        return await super().run(self._when_allowed, function, *args, **kwargs)

    def _when_allowed(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._changed:
            assert self._changed.wait_for(lambda: self._num_allowed > 0, timeout=30)
            self._num_allowed -= 1
        return function(*args, **kwargs)


@dataclass
class LoopbackNode:
    info: NodeInfo
    engine: FakeEngine
    compute: HeldCompute
    drain: Drain
    metrics: NodeMetrics
    channel: grpc.aio.Channel
    worker: Any  # its DecodeLoop or PrefillWorker
    service: Any
    pairs: Pairs | None = None

    @property
    def in_use(self) -> int:
        self.engine.pool.check()
        counts = self.engine.pool.counts()
        return counts.total - counts.free - counts.cached + counts.promised

    async def is_empty(self) -> None:
        """Every page comes back."""
        await eventually(lambda: self.in_use == 0 and self.drain.num_running == 0)


@dataclass
class Generation:
    """A ``Generate`` call, and what came of it."""

    call: Any
    request: GenerationRequest
    accepted: bool = False
    usage: Usage | None = None
    node: str = ""
    spans: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.outputs: list[list[int]] = [[] for _ in range(self.request.num_choices)]
        self.reasons: list[FinishReason | None] = [None] * self.request.num_choices

    async def next(self) -> str | None:
        """Take one event; its kind, None at the end."""
        event = await self.call.read()
        if event is grpc.aio.EOF:
            return None
        kind: str = event.WhichOneof("event")
        match kind:
            case "accepted":
                self.accepted = True
            case "tokens":
                for delta in map(delta_from_proto, event.tokens.deltas):
                    self.outputs[delta.choice] += delta.token_ids
                    self.reasons[delta.choice] = delta.finish_reason
            case "finished":
                self.usage = event.finished.usage
                self.node = event.finished.timeline.node
                self.spans = tuple(span.name for span in event.finished.timeline.spans)
        return kind

    async def to_the_end(self) -> list[str]:
        """The kinds of the events that are left. Raises the call's error."""
        kinds = []
        while (kind := await self.next()) is not None:
            kinds.append(kind)
        return kinds

    async def stop_choice(self, choice: int) -> None:
        await self.call.write(Command(stop_choice=Command.StopChoice(choice=choice)))


def open_command(
    request: GenerationRequest, *, local_prefill: bool, epoch: int = EPOCHS["decode"]
) -> decode_pb2.GenerateCommand:
    """The transfer's id is the request's."""
    return Command(
        open=Command.Open(
            transfer_id=request.request_id,
            request=request_to_proto(request),
            epoch=epoch,
            local_prefill=local_prefill,
        )
    )


def call_generate(node: LoopbackNode, timeout_s: float | None = None) -> Any:
    return decode_pb2_grpc.DecodeStub(node.channel).Generate(timeout=timeout_s)


async def generate(
    node: LoopbackNode,
    request: GenerationRequest,
    *,
    local_prefill: bool = True,
    timeout_s: float | None = None,
) -> Generation:
    call = call_generate(node, timeout_s)
    await call.write(open_command(request, local_prefill=local_prefill))
    return Generation(call, request)


def run_request(
    request: GenerationRequest, decode: LoopbackNode, mode: str = "pipelined", **others: Any
) -> prefill_pb2.RunRequest:
    fields = {
        "transfer_id": request.request_id,
        "request": request_to_proto(request),
        "epoch": EPOCHS["prefill"],
        "decode_node": decode.info.name,
        "decode_address": decode.info.address,
        "decode_epoch": decode.info.epoch,
        "mode": mode,
    }
    return prefill_pb2.RunRequest(**{**fields, **others})


def prefill(node: LoopbackNode, message: prefill_pb2.RunRequest) -> Any:
    """The call, to await or to cancel. Discovery has found the decode node before."""
    assert node.pairs is not None
    node.pairs.open(message.decode_address)
    return call_run(node, message)


def call_run(node: LoopbackNode, message: prefill_pb2.RunRequest) -> Any:
    return prefill_pb2_grpc.PrefillStub(node.channel).Run(message)


@asynccontextmanager
async def decode_node(
    num_pages: int = 64,
    page_tokens: int = 4,
    transfer: TransferSettings | None = None,
    **engine_settings: int,
) -> AsyncIterator[LoopbackNode]:
    transfer = transfer or TransferSettings()
    with HeldCompute() as compute:
        engine = FakeEngine(num_pages, page_tokens)
        server = new_server()
        info = _info("decode", NodeRole.DECODE, server, engine)
        metrics, drain = NodeMetrics(), Drain(info.name)
        loop = DecodeLoop(engine, compute, EngineSettings(**engine_settings), metrics)
        receiver = KvReceiver(Identity(info.name, info.epoch), engine.layout, engine.kv, transfer)
        receiver.add_to(server)
        admission = ADMISSIONS["on_demand"]
        service = DecodeService(info, engine, loop, receiver, drain, metrics, admission)
        decode_pb2_grpc.add_DecodeServicer_to_server(service, server)
        async with background(loop.run()), _serving(server, info, compute) as channel:
            yield LoopbackNode(info, engine, compute, drain, metrics, channel, loop, service)
            receiver.close()


@asynccontextmanager
async def prefill_node(
    num_pages: int = 64,
    page_tokens: int = 4,
    transfer: TransferSettings | None = None,
    max_queued: int = 8,
    **engine_settings: int,
) -> AsyncIterator[LoopbackNode]:
    transfer = transfer or TransferSettings()
    with HeldCompute() as compute:
        engine = FakeEngine(num_pages, page_tokens)
        server = new_server()
        info = _info("prefill", NodeRole.PREFILL, server, engine)
        metrics, drain = NodeMetrics(), Drain(info.name)
        settings, queue = EngineSettings(**engine_settings), QueueSettings(max_queued=max_queued)
        worker = PrefillWorker(engine, compute, settings, queue, metrics)
        identity = Identity(info.name, info.epoch)
        async with Pairs(identity, engine.layout, transfer, TlsSettings()) as pairs:
            service = PrefillService(info, engine, worker, pairs, transfer, drain, metrics)
            prefill_pb2_grpc.add_PrefillServicer_to_server(service, server)
            async with background(worker.run()), _serving(server, info, compute) as channel:
                yield LoopbackNode(
                    info, engine, compute, drain, metrics, channel, worker, service, pairs
                )


async def eventually(condition: Callable[[], bool], within_s: float = 10) -> None:
    """Until it holds. Only for what nothing announces, such as a server that noticed a hang-up."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def _info(name: str, role: NodeRole, server: grpc.aio.Server, engine: FakeEngine) -> NodeInfo:
    port = server.add_insecure_port("127.0.0.1:0")
    address, epoch = f"127.0.0.1:{port}", EPOCHS[name]
    layout, most = engine.layout, engine.max_tokens
    return NodeInfo(NodeName(name), role, address, epoch, layout, "fake", most, "0")


@asynccontextmanager
async def _serving(
    server: grpc.aio.Server, info: NodeInfo, compute: HeldCompute
) -> AsyncIterator[grpc.aio.Channel]:
    await server.start()
    try:
        async with open_channel(info.address, TlsSettings()) as channel:
            yield channel
    finally:
        compute.let_go()
        await server.stop(0.2)
