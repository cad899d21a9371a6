"""Which nodes answer now: one ``Node.Watch`` stream per discovered address, kept open.

Invariant: a node is in the view exactly while its stream lives and speaks at least every
``SILENCE_S``, as far as this process listens: its own stalls are no node's silence. A restarted
node (another epoch) replaces its old entry. Nothing here decides where a request goes.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from pdcore.cluster import ClusterView, NodeInfo, NodeRole, NodeView
from pdcore.discovery import Discovery, Endpoint
from pdcore.errors import PeerUnavailable
from pdcore.rpc import open_channel
from pdcore.settings import TlsSettings
from pdcore.wire import status_from_proto
from pdwire.v1 import node_pb2, node_pb2_grpc

log = logging.getLogger(__name__)

SILENCE_S = 3.0
NUM_LISTENS = 6  # parts of SILENCE_S; a stall of this process, however long, is one of them
FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 0.5


@dataclass(frozen=True, slots=True)
class _Member:
    view: NodeView
    channel: grpc.aio.Channel


class Membership:
    """``run`` follows the nodes; ``view`` and ``channel`` answer from what it knows."""

    def __init__(self, discovery: Discovery, tls: TlsSettings, linger_s: float, model: str) -> None:
        """``linger_s``: how long running requests may use a node that discovery took away.
        ``model``: the served name of this router's model; nodes of another one are strangers."""
        self._discovery = discovery
        self._tls = tls
        self._linger_s = linger_s
        self._model = model
        self._members: dict[Endpoint, _Member] = {}  # in the order in which they were heard

    async def run(self) -> None:
        """Until cancelled. A snapshot without an address ends that address's stream."""
        async with asyncio.TaskGroup() as group:
            following: dict[Endpoint, asyncio.Task[None]] = {}
            async for snapshot in self._discovery.watch():
                for endpoint in following.keys() - snapshot:
                    following.pop(endpoint).cancel()
                for endpoint in snapshot - following.keys():
                    following[endpoint] = group.create_task(self._follow(endpoint))

    def view(self) -> ClusterView:
        """All nodes that answer. Of several with one name, the one heard last."""
        nodes = {member.view.info.name: member.view for member in self._members.values()}
        in_order = [nodes[name] for name in sorted(nodes)]
        ours = [node for node in in_order if node.info.model == self._model]
        return ClusterView(
            prefill=tuple(node for node in ours if node.info.role is NodeRole.PREFILL),
            decode=tuple(node for node in ours if node.info.role is NodeRole.DECODE),
            strangers=tuple(node for node in in_order if node.info.model != self._model),
        )

    def channel(self, node: NodeInfo) -> grpc.aio.Channel:
        """The channel to this life of a node of the view, never to another one with its name.

        Raises PeerUnavailable when it has just gone.
        """
        for member in self._members.values():
            if (member.view.info.name, member.view.info.epoch) == (node.name, node.epoch):
                return member.channel
        raise PeerUnavailable(f"node {node.name} does not answer any more")

    async def _follow(self, endpoint: Endpoint) -> None:
        failures = 0
        async with self._channel_to(endpoint) as channel:
            while True:
                try:
                    async with aclosing(_statuses(channel)) as statuses:
                        async for view in statuses:
                            self._note(endpoint, _Member(view, channel))
                            failures = 0
                except (grpc.aio.AioRpcError, TimeoutError, ValueError) as error:
                    self._lost(endpoint, error)
                finally:
                    self._members.pop(endpoint, None)
                await asyncio.sleep(backoff_s(failures, random.random()))
                failures += 1

    @asynccontextmanager
    async def _channel_to(self, endpoint: Endpoint) -> AsyncIterator[grpc.aio.Channel]:
        channel = open_channel(endpoint.address, self._tls)
        try:
            yield channel
        finally:
            await channel.close(self._linger_s)

    def _note(self, endpoint: Endpoint, member: _Member) -> None:
        before = self._members.pop(endpoint, None)
        info = member.view.info
        if before is None or before.view.info.epoch != info.epoch:
            log.info("node %s answers", info.name, extra={"address": endpoint.address})
            self._warn_of_misfits(endpoint, info)
        self._members[endpoint] = member  # at the end: the one heard last

    def _warn_of_misfits(self, endpoint: Endpoint, info: NodeInfo) -> None:
        if info.model != self._model:
            log.warning(
                "node %s serves model %r, this router %r: it gets no requests; model.served_name"
                " must be the same",
                info.name,
                info.model,
                self._model,
            )
        for other, member in self._members.items():
            if member.view.info.name == info.name and member.view.info.epoch != info.epoch:
                log.warning(
                    "two nodes are named %s, at %s and %s; only the one heard last gets requests",
                    info.name,
                    other.address,
                    endpoint.address,
                )

    def _lost(self, endpoint: Endpoint, error: Exception) -> None:
        if endpoint in self._members:  # said once, not at every attempt to reconnect
            reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else repr(error)
            log.warning("lost %s node at %s: %s", endpoint.role, endpoint.address, reason)


def backoff_s(failures: int, jitter: float) -> float:
    """How long to wait before the next attempt. ``jitter`` in [0, 1) spreads it over half of it."""
    longest = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures, 16))
    return longest * (0.5 + 0.5 * jitter)


async def _statuses(channel: grpc.aio.Channel) -> AsyncGenerator[NodeView, None]:
    """What the node says of itself. Raises TimeoutError when it falls silent, ValueError when it
    says what this version cannot read."""
    call = node_pb2_grpc.NodeStub(channel).Watch(  # type: ignore[no-untyped-call]
        node_pb2.WatchRequest()
    )
    try:
        while True:
            status = await _heard(call)
            if status is grpc.aio.EOF:
                return
            yield status_from_proto(status)
    finally:
        call.cancel()


async def _heard(call: Any) -> Any:
    """The call's next message. Raises TimeoutError when the node is silent.

    A timer says that time has passed, not that anybody listened: after a stall of the event loop it
    rings before messages that wait in the socket are read. So the time is counted in parts, and
    between two of them everything that waits gets its turn.
    """
    reading = asyncio.ensure_future(call.read())
    try:
        for _ in range(NUM_LISTENS):
            await asyncio.wait([reading], timeout=SILENCE_S / NUM_LISTENS)
            if reading.done():
                return reading.result()
    finally:
        reading.cancel()
    raise TimeoutError(f"silent for {SILENCE_S:g} s")
