"""A router, a prefill node and a decode node as separate processes that a test may kill.

Unlike ``pdspan up``, which stops everything when one dies, each process here is started, killed and
started again by itself. The three may know each other by different addresses (``via``), so that a
relay can stand on one leg only.
"""

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from network_namespaces import NodeProcess
from pdcore.settings import cluster_from_table
from pdspan.toml_text import settings_to_toml
from serving import Cluster, Node

ROLES = ("router", "prefill", "decode")
HEALTHY_S = 90


class Here:
    """This machine, where ``NodeProcess`` expects a host."""

    def command(self, *command: str | Path) -> list[str]:
        return [str(part) for part in command]


class NodeCluster(Cluster):
    """Three processes on loopback. ``addresses`` has each role's real one."""

    def __init__(self, directory: Path, table: Mapping[str, Any]) -> None:
        self.addresses = dict(zip(ROLES, free_addresses(len(ROLES)), strict=True))
        self._metrics = dict(zip(ROLES[1:], free_addresses(2), strict=True))
        self.via: dict[str, dict[str, str]] = {role: {} for role in ROLES}
        self._directory = directory
        self._table = table
        self._running: dict[str, NodeProcess] = {}
        self._stack = ExitStack()
        self.url = f"http://{self.addresses['router']}"
        self.model = "smollm2-135m-instruct"
        self.http = httpx.Client(base_url=self.url, timeout=120, trust_env=False)
        self.nodes = [Node(role, role, 0, address, "") for role, address in self.addresses.items()]

    def start(self, role: str) -> NodeProcess:
        path = self._directory / f"{role}.toml"
        path.write_text(settings_to_toml(self._settings(role)))
        process = NodeProcess(Here(), role, role, "--cluster", path)
        self._running[role] = self._stack.enter_context(process)
        return process

    def start_all(self) -> None:
        for role in ROLES:
            self.start(role)
        self.wait_healthy()

    def kill(self, role: str) -> None:
        """SIGKILL: the node gets no chance to say anything."""
        self._running[role].kill()

    def process(self, role: str) -> NodeProcess:
        return self._running[role]

    def counter(self, role: str, name: str) -> float:
        """A sample of a node's metrics, by its full name; labelled samples are added up."""
        text = httpx.get(f"http://{self._metrics[role]}/metrics", trust_env=False).text
        families = text_string_to_metric_families(text)
        return sum(s.value for family in families for s in family.samples if s.name == name)

    def stop(self) -> None:
        self._stack.close()

    def wait_healthy(self, healthy: bool = True) -> None:
        """Until ``/health`` says that requests can be served (or that they cannot)."""
        end_s = monotonic() + HEALTHY_S
        while self._is_healthy() is not healthy:
            assert monotonic() < end_s, "the cluster did not become healthy"
            sleep(0.1)

    def _is_healthy(self) -> bool:
        try:
            return self.http.get("/health").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _settings(self, viewer: str) -> Any:
        """The cluster as ``viewer`` sees it."""
        nodes = [
            {
                "name": role,
                "role": role,
                "bind": address,
                "advertise": self.via[viewer].get(role, address),
                **({"metrics": self._metrics[role]} if role in self._metrics else {}),
            }
            for role, address in self.addresses.items()
        ]
        return cluster_from_table({**self._table, "nodes": nodes})


@contextmanager
def node_cluster(directory: Path, table: Mapping[str, Any]) -> Iterator[NodeCluster]:
    cluster = NodeCluster(directory, table)
    try:
        yield cluster
    finally:
        cluster.stop()


def free_addresses(count: int) -> list[str]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:
            held.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{held.getsockname()[1]}" for held in sockets]


def free_port() -> int:
    return int(free_addresses(1)[0].rpartition(":")[2])
