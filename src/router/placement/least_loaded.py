"""The pair with the least work waiting and running; equals take turns.

Load is as old as the nodes' last reports, so between two reports turns are what spreads a burst.
"""

from itertools import count

from pdcore.cluster import ClusterView, NodeView
from router.placement.policy import Placement, RequestShape


class LeastLoaded:
    def __init__(self) -> None:
        self._turns = count()

    def choose(self, shape: RequestShape, cluster: ClusterView) -> Placement | None:
        pairs = sorted(cluster.pairs(), key=lambda pair: (pair[0].info.name, pair[1].info.name))
        if not pairs:
            return None
        loads = [_num_requests(prefill) + _num_requests(decode) for prefill, decode in pairs]
        idlest = [pair for pair, load in zip(pairs, loads, strict=True) if load == min(loads)]
        return Placement(*idlest[next(self._turns) % len(idlest)])


def _num_requests(node: NodeView) -> int:
    return node.load.num_queued + node.load.num_running
