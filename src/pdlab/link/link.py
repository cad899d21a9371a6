"""A link that is up: two hosts, and the means to change and to measure what lies between them.

What a kind of link must offer is ``LinkControl``; everything else is the same for all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pdlab.link.hosts import Host
from pdlab.link.measure import measure_hosts
from pdlab.link.profile import LinkProfile, TcpSettings


@dataclass(frozen=True, slots=True)
class MeasuredLink:
    """What a record says of a link: what was asked for, and what was found."""

    kind: str
    profile: LinkProfile
    tcp: TcpSettings
    rtt_min_s: float
    rtt_median_s: float
    rate_bps: float
    """TCP payload, of ``num_flows`` flows together; on a line at most 0.965 of its rate."""
    num_flows: int
    num_bytes: int
    num_round_trips: int
    queue_bytes: int
    limits: tuple[str, ...]
    """In what this kind of link differs from a real path."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Packets of one way so far, as on the wire."""

    packets: int
    bytes: int
    lost: int
    """By chance."""
    dropped: int
    """For lack of room in the queue."""
    cut: int
    refused: int
    """By the device that should have taken them."""


@dataclass(frozen=True, slots=True)
class LinkCounters:
    a_to_b: Counters
    b_to_a: Counters


class LinkControl(Protocol):
    """What lies between the hosts. Methods take effect before they return."""

    def apply(self, profile: LinkProfile) -> None: ...

    def cut(self, seconds: float) -> None: ...

    def counters(self) -> LinkCounters | None:
        """None when this kind does not count."""

    def address_of(self, host: Host, port: int) -> str: ...

    def limits(self) -> tuple[str, ...]:
        """In what this kind of link differs from a real path, for the record."""


class Link:
    def __init__(
        self,
        kind: str,
        profile: LinkProfile,
        tcp: TcpSettings,
        hosts: tuple[Host, Host],
        control: LinkControl,
        on_change: Callable[[LinkProfile], None],
    ) -> None:
        self.kind = kind
        self.profile = profile
        self.tcp = tcp
        self.a, self.b = hosts
        self._control = control
        self._on_change = on_change

    def change(self, profile: LinkProfile) -> None:
        """From now on the link is like this. What has left the line already keeps its delay."""
        self._control.apply(profile)
        self.profile = profile
        self._on_change(profile)

    def cut(self, seconds: float) -> None:
        """Nothing passes for so long, either way. Returns at once."""
        self._control.cut(seconds)

    def counters(self) -> LinkCounters | None:
        return self._control.counters()

    def address_of(self, host: Host, port: int) -> str:
        """``IP:port`` at which the *other* host reaches ``port`` of ``host``."""
        return self._control.address_of(host, port)

    def measure(self) -> MeasuredLink:
        """RTT and rate from ``a`` to ``b`` as they are now. Takes 1 to 4 s, and fills the link."""
        found = measure_hosts(
            self.a, self.b, lambda port: self.address_of(self.b, port), self.profile.rtt_s
        )
        return MeasuredLink(
            kind=self.kind,
            profile=self.profile,
            tcp=self.tcp,
            rtt_min_s=found.rtt_min_s,
            rtt_median_s=found.rtt_median_s,
            rate_bps=found.rate_bps,
            num_flows=found.num_flows,
            num_bytes=found.num_bytes,
            num_round_trips=len(found.round_trips_s),
            queue_bytes=self.profile.queue_room_bytes,
            limits=self._control.limits(),
        )
