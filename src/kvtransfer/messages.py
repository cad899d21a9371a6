"""The messages of ``Attach`` and ``Push`` as values; ``kvtransfer.framing`` has their wire form.

Pages are numbered by their place in the prompt. Nothing here is checked: what a peer may say, and
when, is decided in ``kvtransfer.handshake`` and by the two halves.
"""

from dataclasses import dataclass

from pdcore.cluster import Epoch, NodeName
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout

NO_PAYLOAD = memoryview(b"")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who speaks: a node in one of its lives."""

    node: NodeName
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class AttachRequest:
    sender: Identity
    layout: KvLayout
    protocol: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What the receiver is, and how many bytes one pair may have in flight."""

    receiver: Identity
    layout: KvLayout
    protocol: int
    credit_bytes: int


@dataclass(frozen=True, slots=True)
class PageRun:
    """Consecutive pages, and of each of them consecutive layers."""

    first_page: int
    num_pages: int
    first_layer: int
    num_layers: int

    @property
    def num_parts(self) -> int:
        """How many (page, layer) pairs."""
        return self.num_pages * self.num_layers


@dataclass(frozen=True, slots=True)
class Extent:
    """What all streams of one transfer agree on."""

    num_tokens: int
    num_pages: int
    num_stripes: int


@dataclass(frozen=True, slots=True)
class Opening:
    sender: Identity
    receiver_epoch: Epoch
    protocol: int
    layout: KvLayout
    codec: str
    extent: Extent
    stripe: int


@dataclass(frozen=True, slots=True)
class Frame:
    """``sequence`` counts this stream's frames from 0; ``checksum`` is xxh3_64 of the payload."""

    sequence: int
    runs: tuple[PageRun, ...]
    checksum: int


@dataclass(frozen=True, slots=True)
class Handoff:
    """What the next step needs. ``page_bytes`` is the total, for the last check."""

    first_token_ids: tuple[int, ...]
    cached_tokens: int
    page_bytes: int


Body = Opening | Frame | Handoff


@dataclass(frozen=True, slots=True)
class Push:
    """One message from sender to receiver; ``payload`` is empty unless ``body`` is a Frame."""

    transfer_id: TransferId
    attempt: int
    body: Body
    payload: memoryview = NO_PAYLOAD


@dataclass(frozen=True, slots=True)
class Reply:
    """The receiver's answer on one stream: cumulative acknowledgement, standing credit, commit.

    ``busy_s``: what the receiver's software has spent on the frames that are acknowledged.
    """

    attempt: int
    acked_frames: int
    acked_bytes: int
    credit_bytes: int
    committed: bool = False
    busy_s: float = 0.0
