"""Nodes and clusters as values, for tests of what looks at them."""

from pdcore.cluster import ClusterView, Epoch, NodeInfo, NodeLoad, NodeName, NodeRole, NodeView
from pdcore.kv_layout import KvLayout

LAYOUT = KvLayout(
    model="tiny", num_layers=2, num_kv_heads=1, head_dim=4, page_tokens=4, dtype="float32"
)


def node_view(
    name: str,
    role: NodeRole,
    *,
    address: str = "127.0.0.1:1",
    epoch: int = 1,
    load: NodeLoad | None = None,
    peers: tuple[NodeView, ...] = (),
    draining: bool = False,
    max_tokens: int = 64,
    model: str = "tiny",
    layout: KvLayout = LAYOUT,
) -> NodeView:
    info = NodeInfo(
        name=NodeName(name),
        role=role,
        address=address,
        epoch=Epoch(epoch),
        layout=layout,
        model=model,
        max_tokens=max_tokens,
        version="0",
    )
    known = frozenset((peer.info.name, peer.info.epoch) for peer in peers)
    return NodeView(info, load or NodeLoad(), known, draining)


def decode(name: str, **options: object) -> NodeView:
    return node_view(name, NodeRole.DECODE, **options)  # type: ignore[arg-type]


def prefill(name: str, *peers: NodeView, **options: object) -> NodeView:
    return node_view(name, NodeRole.PREFILL, peers=peers, **options)  # type: ignore[arg-type]


def whole_cluster(num_prefill: int, num_decode: int) -> ClusterView:
    """Every prefill node has a data path to every decode node."""
    decodes = tuple(decode(f"d{i}") for i in range(num_decode))
    return ClusterView(tuple(prefill(f"p{i}", *decodes) for i in range(num_prefill)), decodes)
