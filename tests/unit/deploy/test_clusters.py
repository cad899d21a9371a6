"""The cluster files of deploy/clusters: each one loads, and says what its comments promise."""

from dataclasses import replace
from pathlib import Path

import pytest

from pdcore.cluster import NodeRole
from pdcore.errors import ConfigError
from pdcore.rpc import check_bind, split_address
from pdcore.settings import TlsSettings, load_cluster, with_insecure
from router.placement import POLICIES

DEPLOY = Path(__file__).parents[3] / "deploy"
FILES = sorted((DEPLOY / "clusters").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_loads_and_has_distinct_ports(path: Path) -> None:
    settings = load_cluster(path)
    assert settings.name == path.stem
    assert settings.router.placement in POLICIES
    assert len(settings.nodes_of(NodeRole.ROUTER)) == 1
    assert settings.nodes_of(NodeRole.DECODE)
    addresses = [node.bind for node in settings.nodes]
    addresses += [node.metrics for node in settings.nodes if node.metrics]
    ports = [split_address(address)[1] for address in addresses]
    assert len(set(ports)) == len(ports)


def test_all_files_are_there() -> None:
    assert {path.stem for path in FILES} == {"loopback", "colocated", "two-hosts", "compose"}


@pytest.mark.parametrize("name", ["loopback", "colocated", "two-hosts"])
def test_needs_no_insecure(name: str) -> None:
    settings = load_cluster(DEPLOY / f"clusters/{name}.toml")
    for node in settings.nodes:
        check_bind(settings, node)


def test_compose_is_plain_text_and_so_has_to_say_insecure() -> None:
    settings = load_cluster(DEPLOY / "clusters/compose.toml")
    for node in settings.nodes:
        with pytest.raises(ConfigError, match="--insecure"):
            check_bind(settings, node)
        check_bind(with_insecure(settings), node)


def test_two_hosts_have_mutual_tls_and_addresses_apart() -> None:
    settings = load_cluster(DEPLOY / "clusters/two-hosts.toml")
    assert settings.tls.enabled and settings.tls.mutual
    hosts = {node.role: split_address(node.address)[0] for node in settings.nodes}
    assert hosts[NodeRole.ROUTER] == hosts[NodeRole.DECODE] != hosts[NodeRole.PREFILL]
    for node in settings.nodes:
        assert split_address(node.bind) == ("0.0.0.0", split_address(node.address)[1])


def test_without_its_tls_table_two_hosts_is_refused() -> None:
    settings = replace(load_cluster(DEPLOY / "clusters/two-hosts.toml"), tls=TlsSettings())
    for node in settings.nodes:
        with pytest.raises(ConfigError, match=rf"{node.name}: 0\.0\.0\.0:\d+ .* TLS is off"):
            check_bind(settings, node)


def test_colocated_has_no_prefill_node() -> None:
    settings = load_cluster(DEPLOY / "clusters/colocated.toml")
    assert not settings.nodes_of(NodeRole.PREFILL)
    assert settings.router.placement == "colocated"
