"""The link by the kernel's own emulation: a veth cable between two namespaces, netem at both ends.

For machines whose kernel has it. Packets leave one by one, not in super-packets, so that delay,
loss and the queue's limit act on packets of the MTU; this costs more CPU than the forwarder.
"""

import re

from pdcore.errors import ConfigError
from pdlab.link.hosts import Host
from pdlab.link.link import LinkCounters
from pdlab.link.namespaced import DEVICE, add_hosts, check_root, namespaced_hosts, start_devices
from pdlab.link.namespaces import ip, tc
from pdlab.link.profile import MAX_IN_FLIGHT_BYTES, MTU_BYTES, LinkProfile
from pdlab.link.state import LinkState


class NetemLink:
    def bring_up(self, state: LinkState, lifeline: int | None) -> LinkState:
        check_root("netem")
        add_hosts(state)
        a, b = state.namespaces
        _probe(a)
        ip("-n", a, "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", b)
        for namespace in state.namespaces:
            ip("-n", namespace, "link", "set", DEVICE, "gso_max_segs", "1")
        start_devices(state)
        self.control(state).apply(state.profile)
        return state

    def hosts(self, state: LinkState) -> tuple[Host, Host]:
        return namespaced_hosts(state)

    def control(self, state: LinkState) -> "NetemControl":
        return NetemControl(state.namespaces)


class NetemControl:
    def __init__(self, namespaces: tuple[str, str]) -> None:
        self._namespaces = namespaces

    def apply(self, profile: LinkProfile) -> None:
        for namespace in self._namespaces:
            tc("-n", namespace, "qdisc", "replace", "dev", DEVICE, "root", *netem_words(profile))

    def cut(self, seconds: float) -> None:
        raise ConfigError("a netem link cannot be cut for a time; a tun link can")

    def counters(self) -> LinkCounters | None:
        return None

    def address_of(self, host: Host, port: int) -> str:
        return f"{host.address}:{port}"

    def limits(self) -> tuple[str, ...]:
        return ("netem: jitter may let packets overtake each other",)


def netem_words(profile: LinkProfile) -> list[str]:
    """One way's half of the round trip, as ``tc`` takes it.

    netem's jitter lies on both sides of its delay, ours only above. Its limit counts the packets on
    their way too; without a rate there are no others.
    """
    jitter_us = profile.jitter_s / 4 * 1e6
    delay_us = profile.rtt_s / 2 * 1e6 + jitter_us
    on_its_way: float = MAX_IN_FLIGHT_BYTES
    if profile.rate_bps is not None:
        on_its_way = profile.queue_room_bytes + profile.bdp_bytes / 2
    words = ["netem", "limit", f"{max(1, round(on_its_way / MTU_BYTES))}"]
    words += ["delay", f"{delay_us:.0f}us", *([f"{jitter_us:.0f}us"] if jitter_us else [])]
    if profile.loss:
        words += ["loss", f"{profile.loss:.6%}"]
    if profile.rate_bps is not None:
        words += ["rate", f"{profile.rate_bps:.0f}bit"]
    return words


def _probe(namespace: str) -> None:
    try:
        tc("-n", namespace, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "0ms")
        tc("-n", namespace, "qdisc", "delete", "dev", "lo", "root")
    except ConfigError as error:
        said = re.sub(r"^.*?: ", "", str(error))
        raise ConfigError(f"this kernel has no netem ({said}); the tun link needs none") from None
