"""A prefill and a decode node on loopback whose answers are scripts: real gRPC, no model.

``still_open`` counts the calls that a node is working on, so a test can see that a cancelled
request let go of both.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from cluster_views import node_view
from pdcore.cluster import Epoch, NodeLoad, NodeName, NodeRole, NodeView
from pdcore.discovery import Endpoint, Snapshot
from pdcore.generation import FinishReason, TokenDelta, Usage
from pdcore.rpc import new_server
from pdcore.rpc_errors import aborting
from pdcore.status import StatusService
from pdcore.wire import delta_to_proto, usage_to_proto
from pdwire.v1 import decode_pb2, decode_pb2_grpc, prefill_pb2, prefill_pb2_grpc
from pdwire.v1.generation_pb2 import NodeTimeline, TransferReport


class FakeNode:
    """Its server and its status. ``peers`` may change while it runs."""

    def __init__(self, name: str, role: NodeRole) -> None:
        self.name = NodeName(name)
        self.role = role
        self.known: frozenset[tuple[NodeName, Epoch]] = frozenset()
        self.still_open = 0
        self.server = new_server()

    def load(self) -> NodeLoad:
        return NodeLoad()

    def peers(self) -> frozenset[tuple[NodeName, Epoch]]:
        return self.known

    async def start(self, epoch: int = 1, port: int = 0) -> None:
        port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.address = f"127.0.0.1:{port}"
        self.view: NodeView = node_view(self.name, self.role, address=self.address, epoch=epoch)
        self.status = StatusService(self.view.info, self)
        self.status.add_to(self.server)
        await self.server.start()

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.role, self.address)

    @asynccontextmanager
    async def call(self, context: Any) -> AsyncIterator[None]:
        self.still_open += 1
        try:
            async with aborting(context):
                yield
        finally:
            self.still_open -= 1


class Generating:
    """What a decode script can say."""

    def __init__(self, opening: decode_pb2.GenerateCommand.Open, context: Any) -> None:
        self.opening = opening
        self.stopped: list[int] = []
        self.has_stopped = asyncio.Event()
        self._context = context
        self._num_tokens = 0

    async def tokens(self, *ids: int, choice: int = 0, end: FinishReason | None = None) -> None:
        self._num_tokens += len(ids) + (end is FinishReason.STOP)
        delta = delta_to_proto(TokenDelta(choice, ids, end))
        event = decode_pb2.GenerateEvent.Tokens(deltas=[delta])
        await self._context.write(decode_pb2.GenerateEvent(tokens=event))

    async def finished(self, completion_tokens: int | None = None) -> None:
        counted = self._num_tokens if completion_tokens is None else completion_tokens
        usage = Usage(len(self.opening.request.prompt_token_ids), counted, 2)
        finished = decode_pb2.GenerateEvent.Finished(
            usage=usage_to_proto(usage), timeline=NodeTimeline(node="d0")
        )
        await self._context.write(decode_pb2.GenerateEvent(finished=finished))


DecodeScript = Callable[[Generating], Awaitable[None]]
PrefillScript = Callable[[prefill_pb2.RunRequest], Awaitable[None]]


async def two_tokens(generating: Generating) -> None:
    """``ab``, at once, for every choice."""
    for choice in range(generating.opening.request.num_choices):
        await generating.tokens(token_of("a"), choice=choice)
        await generating.tokens(token_of("b"), choice=choice, end=FinishReason.LENGTH)
    await generating.finished()


async def at_once(request: prefill_pb2.RunRequest) -> None:
    """The pages were committed without delay."""


async def forever(_: Any) -> None:
    await asyncio.Event().wait()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what has no event to wait for: the other side of a socket saw something."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    """``until`` for a condition that has to ask over HTTP."""
    while not await condition():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def token_of(character: str) -> int:
    """The byte-level token of one printable ASCII character (see ``tiny_text``)."""
    from tiny_text import byte_level_tokenizer

    token = byte_level_tokenizer().token_to_id(character)
    assert token is not None
    return token


class FakeDecode(FakeNode):
    def __init__(self, name: str = "d0") -> None:
        super().__init__(name, NodeRole.DECODE)
        self.script: DecodeScript = two_tokens
        self.calls: list[Generating] = []
        decode_pb2_grpc.add_DecodeServicer_to_server(self, self.server)  # type: ignore[no-untyped-call]

    async def Generate(self, commands: AsyncIterator[Any], context: Any) -> None:
        async with self.call(context):
            opening = (await anext(commands)).open
            generating = Generating(opening, context)
            self.calls.append(generating)
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(_listen(commands, generating))
                await self.script(generating)
                listening.cancel()


class FakePrefill(FakeNode):
    def __init__(self, name: str = "p0") -> None:
        super().__init__(name, NodeRole.PREFILL)
        self.script: PrefillScript = at_once
        self.calls: list[prefill_pb2.RunRequest] = []
        prefill_pb2_grpc.add_PrefillServicer_to_server(self, self.server)  # type: ignore[no-untyped-call]

    async def Run(self, request: prefill_pb2.RunRequest, context: Any) -> Any:
        async with self.call(context):
            self.calls.append(request)
            await self.script(request)
            report = TransferReport(mode=request.mode, frames=3)
            return prefill_pb2.RunResult(timeline=NodeTimeline(node="p0", transfer=report))


class Pair:
    """One prefill and one decode node with a data path between them."""

    def __init__(self) -> None:
        self.prefill = FakePrefill()
        self.decode = FakeDecode()

    async def __aenter__(self) -> Self:
        await self.decode.start()
        await self.prefill.start()
        info = self.decode.view.info
        self.prefill.known = frozenset({(info.name, info.epoch)})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.prefill.server.stop(0)
        await self.decode.server.stop(0)

    @property
    def snapshot(self) -> Snapshot:
        return frozenset({self.prefill.endpoint, self.decode.endpoint})

    async def let_go(self) -> None:
        """Wait until neither node works on any call (a test's timeout is what ends this)."""
        await until(lambda: not (self.prefill.still_open or self.decode.still_open))


class FixedDiscovery:
    """Snapshots that a test puts in."""

    def __init__(self, *snapshots: Snapshot) -> None:
        self.snapshots: asyncio.Queue[Snapshot] = asyncio.Queue()
        for snapshot in snapshots:
            self.snapshots.put_nowait(snapshot)

    async def watch(self) -> AsyncIterator[Snapshot]:
        while True:
            yield await self.snapshots.get()


async def _listen(commands: AsyncIterator[Any], generating: Generating) -> None:
    async for command in commands:
        generating.stopped.append(command.stop_choice.choice)
        generating.has_stopped.set()
