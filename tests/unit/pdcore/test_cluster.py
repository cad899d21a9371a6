"""Which pairs of nodes can serve, and what a load adds up to."""

from dataclasses import replace

from pdcore.cluster import (
    ClusterView,
    Epoch,
    NodeInfo,
    NodeLoad,
    NodeName,
    NodeRole,
    NodeView,
    new_epoch,
)
from pdcore.kv_layout import KvLayout

LAYOUT = KvLayout("m", 1, 1, 8, 16, "float32")


def view(name: str, role: NodeRole, epoch: int = 1, **others: object) -> NodeView:
    info = NodeInfo(NodeName(name), role, f"{name}:7000", Epoch(epoch), LAYOUT, "m", 64, "0")
    return replace(NodeView(info, NodeLoad()), **others)  # type: ignore[arg-type]


def peers(*names_and_epochs: tuple[str, int]) -> frozenset[tuple[NodeName, Epoch]]:
    return frozenset((NodeName(name), Epoch(epoch)) for name, epoch in names_and_epochs)


def names(cluster: ClusterView) -> list[tuple[str, str]]:
    return [(prefill.info.name, decode.info.name) for prefill, decode in cluster.pairs()]


def test_a_pair_needs_a_live_data_path() -> None:
    p1 = view("p1", NodeRole.PREFILL, peers=peers(("d1", 1), ("d2", 1)))
    p2 = view("p2", NodeRole.PREFILL, peers=peers(("d2", 1)))
    decode = (view("d1", NodeRole.DECODE), view("d2", NodeRole.DECODE))
    assert names(ClusterView((p1, p2), decode)) == [("p1", "d1"), ("p1", "d2"), ("p2", "d2")]


def test_a_path_to_a_node_that_restarted_does_not_count() -> None:
    prefill = view("p", NodeRole.PREFILL, peers=peers(("d", 1)))
    assert names(ClusterView((prefill,), (view("d", NodeRole.DECODE, epoch=2),))) == []


def test_a_node_that_drains_is_in_no_pair() -> None:
    prefill = view("p", NodeRole.PREFILL, peers=peers(("d", 1)))
    decode = view("d", NodeRole.DECODE)
    assert names(ClusterView((prefill,), (decode,))) == [("p", "d")]
    assert names(ClusterView((replace(prefill, draining=True),), (decode,))) == []
    assert names(ClusterView((prefill,), (replace(decode, draining=True),))) == []


def test_an_empty_cluster_has_no_pair() -> None:
    assert ClusterView().pairs() == ()


def test_epochs_differ_and_fit_in_a_signed_word() -> None:
    epochs = {new_epoch() for _ in range(100)}
    assert len(epochs) == 100
    assert all(0 <= epoch < 2**63 for epoch in epochs)
