"""What a serving run needs, brought up and taken down: links, clusters on them, a client each.

Whatever happens inside ``open_benches``, everything that it brought up is gone afterwards.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from pdcore.settings import ClusterSettings, cluster_from_table
from pdcore.typed_table import merged
from pdlab.client_process import ClientProcess
from pdlab.cluster import ServingCluster
from pdlab.host import describe_host
from pdlab.link import Link, open_link
from pdlab.link_record import link_record
from pdlab.records import LinkRecord
from pdlab.scenario import LinkPlan, ServingScenario, overrides

# One thread computes on each node: nodes that share a machine must not spin against each other.
LAB_SETTINGS: Mapping[str, Any] = {"engine": {"threads": 1}}


@dataclass(frozen=True, slots=True)
class Model:
    """What is served: its directory, what clients call it, and ids to draw prompts from."""

    directory: Path
    name: str
    vocabulary: Sequence[int]


@dataclass(slots=True)
class Bench:
    """A link that is up, with a client on it and a cluster for each arm."""

    link: Link
    record: LinkRecord
    client: ClientProcess
    clusters: Mapping[str, ServingCluster]  # by arm name; arms with equal settings share one
    used_s: float | None = None  # when the last request on this link had ended

    def used(self) -> None:
        self.used_s = monotonic()

    def rest(self, idle_s: float) -> None:
        """Until no request has used the link for so long. One that was never used is not idle."""
        if self.used_s is not None:
            sleep(max(0.0, self.used_s + idle_s - monotonic()))


@contextmanager
def open_benches(
    scenario: ServingScenario, links: Sequence[int], model: Model, logs: Path
) -> Iterator[dict[int, Bench]]:
    """The scenario's ``links``, all up and measured, all clusters ready. Logs go under ``logs``.

    No node starts before the last link was measured: it would take the cores that this needs.
    """
    with ExitStack() as stack:
        measured = {link: _measured_link(stack, scenario.links[link]) for link in links}
        benches = {
            link: _open_bench(stack, scenario, *measured[link], model, logs / f"link-{link}")
            for link in links
        }
        for bench in benches.values():
            for cluster in bench.clusters.values():
                cluster.wait_until_ready(bench.client)
        yield benches


def cluster_settings(scenario: ServingScenario) -> ClusterSettings:
    """Of all clusters, but for what an arm changes, the nodes and the model's directory."""
    return cluster_from_table(merged(LAB_SETTINGS, scenario.cluster), origin=scenario.name)


def _measured_link(stack: ExitStack, plan: LinkPlan) -> tuple[Link, LinkRecord]:
    link = stack.enter_context(open_link(plan.kind, plan.profile, plan.tcp))
    return link, link_record(link.measure(), describe_host().congestion)


def _open_bench(
    stack: ExitStack,
    scenario: ServingScenario,
    link: Link,
    record: LinkRecord,
    model: Model,
    logs: Path,
) -> Bench:
    table = merged(
        merged(LAB_SETTINGS, scenario.cluster),
        {"model": {"path": str(model.directory), "served_name": model.name}},
    )
    by_settings: dict[tuple[str, ...], ServingCluster] = {}
    clusters = {}
    for arm in scenario.arms:
        settings = tuple(overrides(arm.settings))
        if settings not in by_settings:
            directory = logs / f"cluster-{len(by_settings)}"
            cluster = ServingCluster(link, table, directory, settings)
            by_settings[settings] = stack.enter_context(cluster)
        clusters[arm.name] = by_settings[settings]
    client = stack.enter_context(ClientProcess(link.b))
    return Bench(link, record, client, clusters)
