"""All pairs of one prefill node: opened where discovery finds a decode node, kept until forgotten.

    async with Pairs(identity, layout, settings, tls) as pairs:
        pairs.open(address)
        pair = pairs.find(receiver, address)

Connections are few and persistent. Which node is there, the node says itself; no request opens a
pair.
"""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from kvtransfer.changes import Changes
from kvtransfer.data_channels import Dialer
from kvtransfer.messages import Identity
from kvtransfer.pair import Pair
from kvtransfer.window import PathWindow
from pdcore.cluster import Epoch, NodeName
from pdcore.errors import PeerUnavailable
from pdcore.kv_layout import KvLayout
from pdcore.pair_metrics import PairState
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
        self._pairs: dict[str, Pair] = {}  # by address
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

    def open(self, address: str) -> Pair:
        """The pair with the decode node at ``address``; the first call opens it, without a wait."""
        known = self._pairs.get(address)
        if known is not None:
            return known
        dialer = Dialer(address, self._tls)
        pair = Pair(dialer, self._identity, self._layout, self._settings, self._peers_changed)
        task = self._tasks.create_task(pair.run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        self._pairs[address] = pair
        return pair

    def forget(self, address: str) -> None:
        """Send nothing new to that node; the pair closes when its last transfer has ended."""
        pair = self._pairs.pop(address, None)
        if pair is not None:
            pair.forget()

    def find(self, receiver: Identity, address: str) -> Pair:
        """The pair with ``receiver``: attached to it, or lastly was and may be again in a moment.

        Else the pair at ``address``, which the node calls its own: it says who is there now.
        Raises PeerUnavailable when there is neither.
        """
        pairs = [pair for pair in self._pairs.values() if pair.peer == receiver]
        attached = [pair for pair in pairs if pair.standing is not None]
        pair = next(iter(attached or pairs), self._pairs.get(address))
        if pair is None:
            raise PeerUnavailable(
                f"{self._identity.node} has no connection to {receiver.node} (epoch"
                f" {receiver.epoch:x}); known: {', '.join(self._names()) or 'none'}"
            )
        return pair

    @property
    def peers(self) -> Peers:
        """Decode nodes with a live, compatible data path, by name and epoch."""
        standings = (pair.standing for pair in self._pairs.values())
        return frozenset(
            (standing.receiver.node, standing.receiver.epoch)
            for standing in standings
            if standing is not None
        )

    def states(self) -> list[PairState]:
        """One of each decode node that has answered, for metrics."""
        known = [pair for pair in self._pairs.values() if pair.peer is not None]
        by_name = {pair.name: pair for pair in sorted(known, key=_is_attached)}
        return [_state(pair, self._settings) for pair in by_name.values()]

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

    def _names(self) -> list[str]:
        return sorted(pair.name for pair in self._pairs.values())


def _is_attached(pair: Pair) -> bool:
    return pair.standing is not None


def _state(pair: Pair, settings: TransferSettings) -> PairState:
    return PairState(
        peer=NodeName(pair.name),
        rtt_s=pair.path.rtt_s,
        rate_bytes_per_s=pair.path.rate_bytes_per_s,
        window_bytes=PathWindow(pair.path, settings.window_bytes).window_bytes(),
        credit_bytes=pair.credit.granted_bytes,
        in_flight_bytes=pair.credit.in_flight_bytes,
        num_stripes=pair.stripes.num_stripes(),
        warmup_bytes=pair.warmup_bytes,
    )
