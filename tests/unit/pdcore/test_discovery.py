"""Where the nodes are: whole snapshots, from the cluster file or from DNS."""

import asyncio
import socket
from collections import deque
from contextlib import aclosing
from typing import Any

import pytest

from pdcore.cluster import NodeRole
from pdcore.discovery import DISCOVERIES, Endpoint, Snapshot, open_discovery
from pdcore.errors import ConfigError
from pdcore.settings import ClusterSettings, DiscoverySettings, NodeSettings

PREFILL, DECODE = NodeRole.PREFILL, NodeRole.DECODE


def points(*pairs: tuple[NodeRole, str]) -> Snapshot:
    return frozenset(Endpoint(role, address) for role, address in pairs)


async def snapshots(settings: ClusterSettings, num: int) -> list[Snapshot]:
    found: list[Snapshot] = []
    async with asyncio.timeout(10), aclosing(open_discovery(settings).watch()) as watch:  # type: ignore[type-var]
        async for snapshot in watch:
            found.append(snapshot)
            if len(found) == num:
                break
    return found


async def test_static_yields_the_files_nodes_once_by_their_advertised_address() -> None:
    nodes = (
        NodeSettings("router", NodeRole.ROUTER, "127.0.0.1:8000"),
        NodeSettings("p", PREFILL, "0.0.0.0:7001", advertise="p.example:7001"),
        NodeSettings("d", DECODE, "127.0.0.1:7002"),
    )
    watch = open_discovery(ClusterSettings(nodes=nodes)).watch()
    found = [snapshot async for snapshot in watch]
    assert found == [points((PREFILL, "p.example:7001"), (DECODE, "127.0.0.1:7002"))]


def dns(decode: str | None = "d.example:7002", prefill: str | None = None) -> ClusterSettings:
    return ClusterSettings(
        discovery=DiscoverySettings("dns", prefill_dns=prefill, decode_dns=decode, refresh_s=0)
    )


class Resolver:
    """``getaddrinfo`` with answers of ours; the last one of a name stays."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = {name: deque(rows) for name, rows in answers.items()}
        self.num_asked = 0

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        await asyncio.sleep(0)
        self.num_asked += 1
        rows = self.answers[host.partition(".")[0]]
        ips = rows.popleft() if len(rows) > 1 else rows[0]
        if not ips:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ips]


def answer_with(monkeypatch: pytest.MonkeyPatch, **answers: list[list[str]]) -> Resolver:
    resolver = Resolver(**answers)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolver.getaddrinfo)
    return resolver


async def test_dns_yields_every_address_behind_both_names(monkeypatch) -> None:
    answer_with(monkeypatch, p=[["10.0.0.1"]], d=[["10.0.0.2", "10.0.0.3"]])
    assert await snapshots(dns(prefill="p.example:7001"), 1) == [
        points((PREFILL, "10.0.0.1:7001"), (DECODE, "10.0.0.2:7002"), (DECODE, "10.0.0.3:7002"))
    ]


async def test_dns_yields_only_what_changed(monkeypatch) -> None:
    one, two = ["10.0.0.2"], ["10.0.0.3", "10.0.0.2"]
    resolver = answer_with(monkeypatch, d=[one, one, two, two[::-1], one])
    first = points((DECODE, "10.0.0.2:7002"))
    both = first | points((DECODE, "10.0.0.3:7002"))
    assert await snapshots(dns(), 3) == [first, both, first]
    assert resolver.num_asked == 5


async def test_a_name_that_does_not_resolve_is_an_empty_answer_with_a_log_line(
    monkeypatch, caplog
) -> None:
    answer_with(monkeypatch, d=[[], ["10.0.0.2"]])
    assert await snapshots(dns(), 2) == [frozenset(), points((DECODE, "10.0.0.2:7002"))]
    assert "cannot resolve d.example" in caplog.text


async def test_an_ipv6_address_gets_its_brackets(monkeypatch) -> None:
    answer_with(monkeypatch, d=[["fd00::2"]])
    assert await snapshots(dns(), 1) == [points((DECODE, "[fd00::2]:7002"))]


def test_dns_without_a_name_for_decode_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"discovery\.decode_dns must be host:port"):
        open_discovery(dns(decode=None))


def test_dns_needs_a_port() -> None:
    with pytest.raises(ConfigError, match=r"'d\.example' is not host:port"):
        open_discovery(dns(decode="d.example"))


def test_a_kind_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(ConfigError, match="'consul'; one of static, dns"):
        open_discovery(ClusterSettings(discovery=DiscoverySettings("consul")))
    assert list(DISCOVERIES) == ["static", "dns"]
