"""Who is in the cluster: nodes as the router and the nodes see each other.

An **epoch** is drawn when a node starts; a message that carries an older one is refused by name, so
nothing that a dead process promised is ever honoured by its successor.
"""

import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from pdcore.kv_layout import KvLayout

NodeName = NewType("NodeName", str)
Epoch = NewType("Epoch", int)


class NodeRole(StrEnum):
    ROUTER = "router"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What does not change while a node lives. ``max_tokens`` bounds prompt + generated tokens."""

    name: NodeName
    role: NodeRole
    address: str
    epoch: Epoch
    layout: KvLayout
    model: str
    max_tokens: int
    version: str


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """A moment of a node's life. Pages: free + cached + reserved + used + draining = total.

    ``num_running`` computes now, ``num_queued`` waits for pages; the KV of ``num_transferring``
    requests is on its way out (prefill) or expected (decode).
    """

    num_queued: int = 0
    num_running: int = 0
    pages_free: int = 0
    pages_cached: int = 0
    pages_reserved: int = 0
    pages_used: int = 0
    pages_draining: int = 0
    pages_promised: int = 0
    num_transferring: int = 0


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as its last report showed it. ``peers``: decode nodes that this prefill node
    has a live, compatible data path to, by name and epoch."""

    info: NodeInfo
    load: NodeLoad
    peers: frozenset[tuple[NodeName, Epoch]] = frozenset()
    draining: bool = False


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All nodes that answer now. A value: a placement policy may keep it, nothing changes it.

    ``strangers`` answer too, but serve another model than the one who looks: no request is theirs.
    """

    prefill: tuple[NodeView, ...] = ()
    decode: tuple[NodeView, ...] = ()
    strangers: tuple[NodeView, ...] = ()

    def pairs(self) -> tuple[tuple[NodeView, NodeView], ...]:
        """(prefill, decode) pairs whose data path is up and that take new work.

        Two layouts never pair, whatever ``peers`` says.
        """
        return tuple(
            (prefill, decode)
            for prefill in self.prefill
            for decode in self.decode
            if not prefill.draining
            and not decode.draining
            and (decode.info.name, decode.info.epoch) in prefill.peers
            and prefill.info.layout == decode.info.layout
        )


def new_epoch() -> Epoch:
    """63 random bits: no clock to trust, no file to keep."""
    return Epoch(secrets.randbits(63))
