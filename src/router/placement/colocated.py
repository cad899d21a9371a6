"""The baseline: decode nodes take turns and prefill by themselves; nothing crosses the network."""

from itertools import count

from pdcore.cluster import ClusterView
from router.placement.policy import Placement, RequestShape


class Colocated:
    def __init__(self) -> None:
        self._turns = count()

    def choose(self, shape: RequestShape, cluster: ClusterView) -> Placement | None:
        nodes = sorted(
            (node for node in cluster.decode if not node.draining), key=lambda node: node.info.name
        )
        return Placement(None, nodes[next(self._turns) % len(nodes)]) if nodes else None
