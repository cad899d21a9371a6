"""The cluster files that the laboratory writes are read by the nodes as they were meant."""

from pathlib import Path

import pytest

from pdcore.errors import PdspanError
from pdcore.settings import load_cluster
from pdlab.cluster import ServingCluster
from pdlab.link import Host, Link, LinkProfile, TcpSettings
from pdlab.link.loopback import LoopbackControl

HOSTS = Host("a", "198.18.0.1", "ns-a"), Host("b", "198.18.0.2", "ns-b")
LINK = Link("tun", LinkProfile(), TcpSettings(), HOSTS, LoopbackControl(), lambda _: None)


def test_each_host_has_a_file_with_all_nodes_and_all_settings(tmp_path: Path) -> None:
    name = "mod\u00e8le \U0001f600"  # a character that JSON would write as two surrogates
    settings = {"model": {"served_name": name}, "engine": {"threads": 3}}
    ServingCluster(LINK, settings, tmp_path)
    for host in ("a", "b"):
        cluster = load_cluster(tmp_path / f"cluster-{host}.toml", [])
        assert (cluster.model.served_name, cluster.engine.threads) == (name, 3)
        places = {node.name: node.bind.rpartition(":")[0] for node in cluster.nodes}
        assert places == {"router": "198.18.0.2", "decode": "198.18.0.2", "prefill": "198.18.0.1"}


def test_a_disk_that_takes_no_logs_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PdspanError, match="file/logs: cannot write: Not a directory"):
        ServingCluster(LINK, {}, tmp_path / "file" / "logs")
