"""What links between two namespaces share: the hosts, their TCP settings, and who may have them."""

import os

from pdcore.errors import ConfigError
from pdlab.link.hosts import Host
from pdlab.link.namespaces import add_namespace, ip, read_sysctl, write_sysctls
from pdlab.link.profile import MTU_BYTES
from pdlab.link.state import LinkState

DEVICE = "link0"
ADDRESSES = ("198.18.0.1", "198.18.0.2")  # a range for benchmarks, routed nowhere
QUEUE_PACKETS = 10_000  # before the device; what drops packets is the link's own queue


def check_root(kind: str) -> None:
    if os.geteuid() != 0:
        raise ConfigError(
            f"a {kind} link needs root, for network namespaces; without root there is the relay"
        )


def add_hosts(state: LinkState) -> None:
    for namespace in state.namespaces:
        add_namespace(namespace)
        write_sysctls(namespace, state.tcp.sysctls())
        if state.tcp.congestion is not None:
            _set_congestion(namespace, state.tcp.congestion)


def start_devices(state: LinkState) -> None:
    """Give ``DEVICE`` of each host its address; both are there, and down."""
    for namespace, address in zip(state.namespaces, ADDRESSES, strict=True):
        ip("-n", namespace, "address", "add", f"{address}/24", "dev", DEVICE)
        size = ("mtu", str(MTU_BYTES), "txqueuelen", str(QUEUE_PACKETS))
        ip("-n", namespace, "link", "set", DEVICE, *size, "up")


def namespaced_hosts(state: LinkState) -> tuple[Host, Host]:
    a, b = (
        Host(name, address, namespace)
        for name, address, namespace in zip("ab", ADDRESSES, state.namespaces, strict=True)
    )
    return a, b


def _set_congestion(namespace: str, name: str) -> None:
    try:
        write_sysctls(namespace, {"net.ipv4.tcp_congestion_control": name})
    except ConfigError:
        available = read_sysctl(namespace, "net.ipv4.tcp_available_congestion_control")
        if name in available.split():
            raise ConfigError(
                f"this host does not allow {name!r} in network namespaces: sysctl -w"
                f' net.ipv4.tcp_allowed_congestion_control="reno {name}"'
            ) from None
        raise ConfigError(
            f"this kernel has no congestion control {name!r}; it has: {available}"
        ) from None
