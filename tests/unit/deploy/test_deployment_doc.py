"""docs/deployment.md names only what there is: files, anchors, ports, metrics."""

import asyncio
import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from pdcore.cluster import NodeLoad
from pdcore.metrics import KvUse, NodeMetrics
from pdcore.pair_metrics import PairState
from pdcore.rpc import split_address
from pdcore.settings import load_cluster
from router.metrics import RouterMetrics

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs/deployment.md").read_text()


class Idle:
    pages_shared = 0

    def load(self) -> NodeLoad:
        return NodeLoad()

    def states(self) -> list[PairState]:
        return []


def test_files_that_are_named_exist() -> None:
    named = set(re.findall(r"\b(?:deploy|tests)/[\w./@-]*\w", DOC)) - {"deploy/wheels"}
    assert len(named) > 8
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_contents_and_headings_agree() -> None:
    headings = re.findall(r"^## (.+)$", DOC, re.MULTILINE)
    contents = re.findall(r"^- \[(.+)\]\(#(.+)\)$", DOC, re.MULTILINE)
    assert [title for title, _ in contents] == headings
    for title, anchor in contents:
        assert anchor == re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def test_ports_are_those_of_the_cluster_file() -> None:
    table = DOC.split("## Ports and firewalls")[1].split("##")[0]
    nodes = load_cluster(ROOT / "deploy/clusters/two-hosts.toml").nodes
    addresses = [node.bind for node in nodes] + [node.metrics for node in nodes if node.metrics]
    ports = {str(split_address(address)[1]) for address in addresses}
    assert ports == set(re.findall(r"\b\d{4}\b", table))


async def test_metrics_that_are_named_exist() -> None:
    metrics = NodeMetrics()
    metrics.show_load(Idle())
    metrics.show_pairs(Idle())
    metrics.show_kv_use(lambda: KvUse(0, 0))
    await asyncio.to_thread(check_names, metrics)


def check_names(metrics: NodeMetrics) -> None:
    registries = (metrics.registry, RouterMetrics(CollectorRegistry()).registry)
    families = {family.name for registry in registries for family in registry.collect()}
    named = {name.removesuffix("_total") for name in re.findall(r"`(pdspan_\w+)", DOC)}
    assert len(named) > 8
    assert named <= families
