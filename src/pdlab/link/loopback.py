"""No link at all: both hosts are this machine, on loopback. Single-host benchmarks measure this."""

from pdcore.errors import ConfigError
from pdlab.link.hosts import Host
from pdlab.link.link import LinkCounters
from pdlab.link.profile import LinkProfile, TcpSettings
from pdlab.link.state import LinkState

ADDRESS = "127.0.0.1"


class LoopbackLink:
    def bring_up(self, state: LinkState, lifeline: int | None) -> LinkState:
        if lifeline is None:
            raise ConfigError("loopback is always up: there is nothing to bring up or take down")
        check_tcp(state)
        self.control(state).apply(state.profile)
        return state

    def hosts(self, state: LinkState) -> tuple[Host, Host]:
        return this_machine()

    def control(self, state: LinkState) -> "LoopbackControl":
        return LoopbackControl()


class LoopbackControl:
    def apply(self, profile: LinkProfile) -> None:
        if profile != LinkProfile():
            raise ConfigError("loopback is as it is: it takes no rtt, rate, loss, jitter or queue")

    def cut(self, seconds: float) -> None:
        raise ConfigError("loopback cannot be cut")

    def counters(self) -> LinkCounters | None:
        return None

    def address_of(self, host: Host, port: int) -> str:
        return f"{host.address}:{port}"

    def limits(self) -> tuple[str, ...]:
        return ("loopback: no path between the hosts, and the machine's own TCP settings",)


def this_machine() -> tuple[Host, Host]:
    """Both hosts, where they are only two names for this machine."""
    return Host("a", ADDRESS), Host("b", ADDRESS)


def check_tcp(state: LinkState) -> None:
    """ConfigError for TCP settings that would not be in force: the hosts have none of their own."""
    if state.tcp != TcpSettings():
        raise ConfigError(
            f"a {state.kind} link has the machine's own TCP settings: leave out buffers,"
            " congestion, slow_start_after_idle and metrics_save"
        )
