"""What an arm is to the two ends: an open connection that can send, and one that can receive.

A builder makes an async context that holds the connections: they stay open, and warm, from one
move to the next. The receiving half opens first and says how it is reached.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from pdcore.settings import TransferSettings
from pdlab.transfer.messages import Move, Peer, Told
from pdlab.transfer.pool import Pool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a half of an arm runs. ``host``: the address of this end of the link."""

    pool: Pool
    host: str
    settings: TransferSettings


class Sending(Protocol):
    async def send(self, move: Move) -> Told | None:
        """Returns when the receiver has said that it has everything."""
        ...


class Receiving(Protocol):
    peer: Peer  # how the sender reaches this half

    async def receive(self, move: Move, ready: asyncio.Event) -> None:
        """Set ``ready`` when the sender may begin; return when everything is in the pool."""
        ...


SendingBuilder = Callable[[Place, Peer], AbstractAsyncContextManager[Sending]]
ReceivingBuilder = Callable[[Place], AbstractAsyncContextManager[Receiving]]


@dataclass(frozen=True, slots=True)
class Arm:
    sending: SendingBuilder
    receiving: ReceivingBuilder
