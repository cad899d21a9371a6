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
        self._pairs: dict[tuple[NodeName, str], tuple[Pair, asyncio.Task[None]]] = {}
        self._peers_changed = Changes()
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pairs = [pair for pair, _ in self._pairs.values()]
        for pair in pairs:
            self._stop(pair)
        await self._tasks.__aexit__(kind, error, traceback)
        for pair in pairs:
            await pair.close()

    def pair(self, name: NodeName, address: str) -> Pair:
        """The pair with a decode node; the first call opens it and returns at once."""
        known = self._pairs.get((name, address))
        if known is not None:
            return known[0]
        channels = [open_channel(address, self._tls) for _ in range(self._settings.stripes)]
        pair = Pair(name, address, channels, self._identity, self._layout, self._peers_changed)
        task = self._tasks.create_task(pair.keep_attached())
        self._pairs[name, address] = (pair, task)
        return pair

    async def forget(self, name: NodeName, address: str) -> None:
        """Close the pair, if it is known; transfers on it fail."""
        known = self._pairs.get((name, address))
        if known is not None:
            self._stop(known[0])
            await known[0].close()

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

    def _stop(self, pair: Pair) -> None:
        _, task = self._pairs.pop((pair.name, pair.address))
        task.cancel()
        self._peers_changed.notify()
