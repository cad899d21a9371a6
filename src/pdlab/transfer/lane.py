"""One arm of a trial while it is measured: its connections, and what each move over them took."""

from dataclasses import dataclass, field
from itertools import count

from pdcore.errors import PdspanError
from pdlab.link import Link
from pdlab.transfer.ends import Ends
from pdlab.transfer.messages import (
    ArmOpened,
    CloseArm,
    Collect,
    Collected,
    Expecting,
    Move,
    OpenArm,
    Peer,
    Sent,
)
from pdlab.transfer.pool import Extent

OPEN_S = 20.0
ANNOUNCE_S = 20.0
COMPARE_S = 60.0

_names = count()


@dataclass(frozen=True, slots=True)
class Sample:
    """One move, as both ends saw it."""

    extent: Extent
    num_bytes: int
    sent: Sent
    collected: Collected

    @property
    def goodput_bps(self) -> float:
        return 8 * self.num_bytes / self.sent.duration_s

    @property
    def cpu_s(self) -> float:
        return self.sent.cpu_s + self.collected.cpu_s

    @property
    def verified(self) -> bool:
        return not self.collected.num_wrong_pages


@dataclass(slots=True)
class Lane:
    """``failure``: why it was given up; it keeps what it had measured before."""

    arm: str
    ends: Ends
    page_bytes: int
    warm_bytes: int = 0
    warm_bytes_per_s: float = 0.0  # what it showed while it warmed up
    num_pages: int = 0  # that a repetition moves
    samples: list[Sample] = field(default_factory=list)
    failure: PdspanError | None = None

    async def open(self, link: Link, overrides: tuple[str, ...]) -> None:
        sender, receiver = self.ends.sender, self.ends.receiver
        request = OpenArm(self.arm, receiver.host.address, overrides)
        opened = await receiver.ask(request, ArmOpened, OPEN_S)
        peer = _as_seen_from_a(link, opened.peer)
        request = OpenArm(self.arm, sender.host.address, overrides, peer)
        await sender.ask(request, ArmOpened, OPEN_S)

    async def close(self) -> None:
        """The sender first: it is the one who would try to come back."""
        for end in (self.ends.sender, self.ends.receiver):
            await end.ask(CloseArm(self.arm), ArmOpened, OPEN_S)

    async def move(
        self, extent: Extent, within_s: float, *, warms: bool = False, watch: bool = False
    ) -> Sample:
        """From announcing to comparing. Raises what went wrong at either end."""
        name = f"{self.arm}-{next(_names)}"
        move = Move(self.arm, name, extent.first_page, extent.num_pages, warms, watch)
        await self.ends.receiver.ask(move, Expecting, ANNOUNCE_S)
        sent = await self.ends.sender.ask(move, Sent, within_s)
        collected = await self.ends.receiver.ask(Collect(move.name), Collected, COMPARE_S)
        return Sample(extent, extent.num_pages * self.page_bytes, sent, collected)


def _as_seen_from_a(link: Link, peer: Peer) -> Peer:
    """A relay answers in the receiver's place."""
    if not peer.address:
        return peer
    port = int(peer.address.rpartition(":")[2])
    return Peer(link.address_of(link.b, port), peer.epoch, peer.blob)
