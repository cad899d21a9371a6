"""All pairs of one prefill node: opened when a decode node is first known, kept until forgotten.

    async with Pairs(identity, layout, settings, tls) as pairs:
        pair = pairs.pair(name, address)

Connections are few and persistent: ``settings.stripes`` for each decode node.
"""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from kvtransfer.changes import Changes
from kvtransfer.messages import Identity
from kvtransfer.pair import Pair
from pdcore.cluster import Epoch, NodeName
from pdcore.kv_layout import KvLayout
from pdcore.rpc import open_channel
from pdcore.settings import TlsSettings, TransferSettings

Peers = frozenset[tuple[NodeName, Epoch]]


class Pairs:
    """Use as an async context; leaving it closes every pair."""

    def __init__(
        self, identity: Identity, layout: KvLayout, settings: TransferSettings, tls: TlsSettings
    ) -> None:
        self._identity = identity
        self._layout = layout
        self._settings = settings
        self._tls = tls
        self._pairs: dict[tuple[NodeName, str], tuple[Pair, asyncio.Event]] = {}
        self._peers_changed = Changes()
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._running:
            task.cancel()
        await self._tasks.__aexit__(kind, error, traceback)

    def pair(self, name: NodeName, address: str) -> Pair:
        """The pair with a decode node; the first call opens it and returns at once."""
        known = self._pairs.get((name, address))
        if known is not None:
            return known[0]
        channels = [open_channel(address, self._tls) for _ in range(self._settings.stripes)]
        pair = Pair(name, address, channels, self._identity, self._layout, self._peers_changed)
        forgotten = asyncio.Event()
        task = self._tasks.create_task(_run(pair, forgotten))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        self._pairs[name, address] = (pair, forgotten)
        return pair

    def forget(self, name: NodeName, address: str) -> None:
        """Send nothing new to that node; the pair closes when its last transfer has ended."""
        known = self._pairs.pop((name, address), None)
        if known is not None:
            known[1].set()

    @property
    def peers(self) -> Peers:
        """Decode nodes with a live, compatible data path, by name and epoch."""
        standings = (pair.standing for pair, _ in self._pairs.values())
        return frozenset(
            (standing.receiver.node, standing.receiver.epoch)
            for standing in standings
            if standing is not None
        )

    async def watch_changes(self) -> AsyncIterator[Peers]:
        """``peers`` at once, and again whenever it has changed."""
        last: Peers | None = None
        while True:
            change = self._peers_changed.next()
            if self.peers != last:
                last = self.peers
                yield last
            else:
                await change.wait()


async def _run(pair: Pair, forgotten: asyncio.Event) -> None:
    """The life of a pair: attached until it is forgotten, then open until it is idle."""
    try:
        async with asyncio.TaskGroup() as tasks:
            attached = tasks.create_task(pair.keep_attached())
            await forgotten.wait()
            attached.cancel()
        pair.detached()
        await pair.idle()
    finally:
        await pair.close()
