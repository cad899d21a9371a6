"""The link without root: a process of ours relays TCP connections on loopback, late and at a rate.

The hosts are this machine. A port of one is reached by the other under a port of the relay, which
``address_of`` opens. The kernel's TCP sees loopback, so this shows what an application's own
waiting costs, and nothing of TCP's; the bound on bytes in flight stands in every record.
"""

import sys
from dataclasses import replace

from pdcore.errors import ConfigError
from pdlab.link.forwarder_control import ForwarderControl
from pdlab.link.hosts import Host
from pdlab.link.link import LinkCounters
from pdlab.link.loopback import check_tcp, this_machine
from pdlab.link.processes import start_process
from pdlab.link.profile import LinkProfile
from pdlab.link.state import LinkState, listener_of, update
from pdlab.quantities import format_bytes


class RelayLink:
    def bring_up(self, state: LinkState, lifeline: int | None) -> LinkState:
        check_tcp(state)
        with listener_of(state) as listener:
            fds = [listener] + ([] if lifeline is None else [lifeline])
            command = [sys.executable, "-m", "pdlab.link.relay_process", *map(str, fds)]
            state = replace(state, forwarder=start_process(command, fds, state.log_path))
        update(state)
        self.control(state).apply(state.profile)
        return state

    def hosts(self, state: LinkState) -> tuple[Host, Host]:
        return this_machine()

    def control(self, state: LinkState) -> "RelayControl":
        return RelayControl(ForwarderControl(state), state.profile)


class RelayControl:
    def __init__(self, process: ForwarderControl, profile: LinkProfile) -> None:
        self._process = process
        self._profile = profile

    def apply(self, profile: LinkProfile) -> None:
        if profile.loss:
            raise ConfigError("a relay cannot lose packets, since it sees none: leave out the loss")
        self._process.apply(profile)
        self._profile = profile

    def cut(self, seconds: float) -> None:
        self._process.cut(seconds)

    def counters(self) -> LinkCounters | None:
        return None

    def address_of(self, host: Host, port: int) -> str:
        way = "a_to_b" if host.name == "b" else "b_to_a"
        return f"{host.address}:{int(self._process.say(f'relay {way} {port}'))}"

    def limits(self) -> tuple[str, ...]:
        in_flight = round(self._profile.queue_room_bytes + self._profile.bdp_bytes / 2)
        return (
            "relay: the kernel's TCP sees loopback, so no slow start, loss or congestion control",
            f"relay: at most {format_bytes(in_flight)} in flight per connection and way",
            "relay: a connection opens without a round trip",
        )
