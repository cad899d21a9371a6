"""deploy/clusters/two-hosts.toml as it is, on two hosts: prefill on A, router and decode on B."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from network_namespaces import Host, NodeProcess, two_hosts
from pdcore.rpc import split_address
from pdcore.settings import load_cluster

pytestmark = pytest.mark.netns

DEPLOY = Path(__file__).parents[3] / "deploy"
FILE = DEPLOY / "clusters/two-hosts.toml"
ADDRESSES = {node.name: node.address for node in load_cluster(FILE).nodes}
ADDRESS_A, ADDRESS_B = (split_address(ADDRESSES[name])[0] for name in ("prefill-0", "decode-0"))
ROUTER_URL = f"https://{ADDRESSES['router-0']}"
REQUEST_SCRIPT = Path(__file__).with_name("request_over_tls.py")


class Files:
    """The cluster file as it lies on a host, with the host's certificates.

    Both hosts share one file system here, so ``/etc/pdspan/tls`` is a directory per host. ``a`` and
    ``b`` are hosts of the cluster; ``stranger`` has everything from another authority;
    ``impostor`` trusts the cluster's authority but was signed by another one.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for authority in ("ours", "theirs"):
            for name, address in (("a", ADDRESS_A), ("b", ADDRESS_B)):
                self._make_certs(authority, name, address)
        self._lay("a", "ours", "ours", "a")
        self._lay("b", "ours", "ours", "b")
        self._lay("stranger", "theirs", "theirs", "a")
        self._lay("impostor", "ours", "theirs", "a")

    def tls(self, host: str) -> Path:
        return self._directory / host / "tls"

    def cluster(self, host: str, *edits: tuple[str, str]) -> Path:
        """The cluster file for ``host``; each edit is a pattern and its replacement."""
        text = FILE.read_text().replace("/etc/pdspan/tls", str(self.tls(host)))
        for pattern, replacement in edits:
            text, num_replaced = re.subn(pattern, replacement, text)
            assert num_replaced, f"{pattern} is not in {FILE.name}"
        path = self._directory / host / f"cluster-{len(list(self._directory.rglob('*.toml')))}.toml"
        path.write_text(text)
        return path

    def _make_certs(self, authority: str, name: str, address: str) -> None:
        command = [DEPLOY / "make_certs.sh", self._directory / authority, name, address]
        subprocess.run(command, check=True, capture_output=True)

    def _lay(self, host: str, trusted: str, authority: str, name: str) -> None:
        self.tls(host).mkdir(parents=True)
        shutil.copy(self._directory / trusted / "ca.crt", self.tls(host) / "ca.crt")
        for kind in ("crt", "key"):
            source = self._directory / authority / f"{name}.{kind}"
            shutil.copy(source, self.tls(host) / f"host.{kind}")


@dataclass(frozen=True, slots=True)
class Cluster:
    a: Host
    b: Host
    files: Files

    def request(self, url: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
        """An HTTPS request from host A: status and body."""
        arguments = [self.files.tls("a"), url, *([json.dumps(body)] if body else [])]
        result = self.a.run(sys.executable, REQUEST_SCRIPT, *arguments)
        assert result.returncode == 0, result.stderr
        reply = json.loads(result.stdout)
        return reply["status"], reply["text"]

    def check(self, node: str, cluster_file: Path) -> subprocess.CompletedProcess[str]:
        """What deploy/healthcheck.py says of ``node`` on host A."""
        return self.a.run(sys.executable, DEPLOY / "healthcheck.py", cluster_file, node)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, default_model: Path) -> Iterator[Cluster]:
    files = Files(tmp_path_factory.mktemp("hosts"))
    with two_hosts(ADDRESS_A, ADDRESS_B) as (a, b), ExitStack() as nodes:
        nodes.enter_context(start(b, "decode", "decode-0", files.cluster("b")))
        prefill = nodes.enter_context(start(a, "prefill", "prefill-0", files.cluster("a")))
        prefill.wait_for('"message": "attached to ')
        router = nodes.enter_context(start(b, "router", "router-0", files.cluster("b")))
        for name in ("prefill-0", "decode-0"):
            router.wait_for(f"node {name} answers")
        yield Cluster(a, b, files)


def start(host: Host, role: str, name: str, cluster_file: Path) -> NodeProcess:
    return NodeProcess(host, role, name, "--cluster", cluster_file, "--set", "engine.threads=1")


def test_a_completion_crosses_from_host_to_host(cluster: Cluster) -> None:
    sent_before = cluster.a.sent_bytes
    status, text = cluster.request(
        f"{ROUTER_URL}/v1/completions",
        {
            "model": "smollm2-135m-instruct",
            "prompt": "The capital of France is",
            "max_tokens": 4,
            "temperature": 0,
            "timeline": True,
        },
    )
    assert status == 200, text
    reply = json.loads(text)
    timeline = reply["timeline"]
    assert "Paris" in reply["choices"][0]["text"]
    assert timeline["placement"] == {"prefill": "prefill-0", "decode": "decode-0"}
    assert timeline["transfer"]["page_bytes"] > 0
    assert cluster.a.sent_bytes - sent_before > timeline["transfer"]["wire_bytes"]


@pytest.mark.parametrize("name", ADDRESSES)
def test_every_node_is_healthy(cluster: Cluster, name: str) -> None:
    result = cluster.check(name, cluster.files.cluster("a"))
    assert (result.returncode, result.stdout) == (0, f"{name}: takes work\n"), result.stderr


@pytest.mark.parametrize("port", [9101, 9102])
def test_metrics_are_served_over_tls(cluster: Cluster, port: int) -> None:
    host = {9101: ADDRESS_A, 9102: ADDRESS_B}[port]
    status, text = cluster.request(f"https://{host}:{port}/metrics")
    assert status == 200
    assert "pdspan_pages" in text


@pytest.mark.parametrize("name", ADDRESSES)
def test_plain_text_is_refused(cluster: Cluster, name: str) -> None:
    plain = cluster.files.cluster("a", (r"(?m)^(ca|cert|key|mutual) = .*$", ""))
    assert hung_up(cluster.check(name, plain))


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_peer_without_a_certificate_is_refused(cluster: Cluster, name: str) -> None:
    anonymous = cluster.files.cluster("a", ("mutual = true", "mutual = false"))
    assert hung_up(cluster.check(name, anonymous))


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_certificate_of_another_authority_is_refused(cluster: Cluster, name: str) -> None:
    assert hung_up(cluster.check(name, cluster.files.cluster("impostor")))


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_cluster_of_another_authority_is_refused(cluster: Cluster, name: str) -> None:
    assert mistrusted(cluster.check(name, cluster.files.cluster("stranger")))


def test_a_node_of_another_authority_does_not_join(cluster: Cluster) -> None:
    """It runs, on ports of its own, and neither reaches the cluster nor is reached by it."""
    ports = ((":7001", ":7011"), (":9101", ":9111"))
    stranger = cluster.files.cluster("stranger", *ports)
    with start(cluster.a, "prefill", "prefill-0", stranger) as node:
        node.wait_for('"event": "ready"')
        assert "not attached" in node.wait_for("attached to")["message"]
        assert mistrusted(cluster.check("prefill-0", cluster.files.cluster("a", *ports)))
        assert node.stop() == 0
    assert cluster.request(f"{ROUTER_URL}/health")[0] == 200


def hung_up(result: subprocess.CompletedProcess[str]) -> bool:
    """The node listens, and ended the connection before it said a word."""
    assert result.returncode == 1, result.stdout + result.stderr
    return re.search(r"Socket closed|disconnected|ReadError", result.stdout) is not None


def mistrusted(result: subprocess.CompletedProcess[str]) -> bool:
    """The client ended the connection: the node's certificate proves nothing to it."""
    assert result.returncode == 1, result.stdout + result.stderr
    return "CERTIFICATE_VERIFY_FAILED" in result.stdout
