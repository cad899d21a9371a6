"""Where the nodes are. ``watch()`` yields whole snapshots, never differences.

``static``: the cluster file's own nodes, once. ``dns``: the addresses that two names resolve to
(a Kubernetes headless service has one per pod), looked up again every ``refresh_s``, yielded when
they changed. A name that does not resolve now is an empty answer, not an error: pods come and go.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from pdcore.cluster import NodeRole
from pdcore.errors import ConfigError
from pdcore.rpc import split_address
from pdcore.settings import ClusterSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    role: NodeRole
    address: str


Snapshot = frozenset[Endpoint]


class Discovery(Protocol):
    def watch(self) -> AsyncIterator[Snapshot]: ...


class StaticDiscovery:
    """The nodes that the cluster file lists."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._snapshot = frozenset(
            Endpoint(node.role, node.address)
            for node in settings.nodes
            if node.role is not NodeRole.ROUTER
        )

    async def watch(self) -> AsyncIterator[Snapshot]:
        yield self._snapshot


class DnsDiscovery:
    """Every address behind ``prefill_dns`` and ``decode_dns`` (``host:port``)."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._refresh_s = settings.discovery.refresh_s
        names = {
            NodeRole.PREFILL: settings.discovery.prefill_dns,
            NodeRole.DECODE: settings.discovery.decode_dns,
        }
        if names[NodeRole.DECODE] is None:
            raise ConfigError("discovery.kind is dns, so discovery.decode_dns must be host:port")
        self._names = {role: split_address(name) for role, name in names.items() if name}

    async def watch(self) -> AsyncIterator[Snapshot]:
        last: Snapshot | None = None
        while True:
            found = [await _resolve(role, *name) for role, name in self._names.items()]
            snapshot: Snapshot = frozenset().union(*found)
            if snapshot != last:
                yield snapshot
                last = snapshot
            await asyncio.sleep(self._refresh_s)


async def _resolve(role: NodeRole, host: str, port: int) -> Snapshot:
    loop = asyncio.get_running_loop()
    try:
        rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        log.warning("cannot resolve %s: %s", host, error)
        return frozenset()
    hosts = {str(row[4][0]) for row in rows}
    return frozenset(
        Endpoint(role, f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}") for ip in hosts
    )


DISCOVERIES: dict[str, Callable[[ClusterSettings], Discovery]] = {
    "static": StaticDiscovery,
    "dns": DnsDiscovery,
}


def open_discovery(settings: ClusterSettings) -> Discovery:
    kind = settings.discovery.kind
    if kind not in DISCOVERIES:
        raise ConfigError(f"discovery.kind is {kind!r}; one of {', '.join(DISCOVERIES)}")
    return DISCOVERIES[kind](settings)
