"""Pairs take turns, in the order of their names. Fair when requests are alike."""

from itertools import count

from pdcore.cluster import ClusterView
from router.placement.policy import Placement, RequestShape


class RoundRobin:
    def __init__(self) -> None:
        self._turns = count()

    def choose(self, shape: RequestShape, cluster: ClusterView) -> Placement | None:
        pairs = sorted(cluster.pairs(), key=lambda pair: (pair[0].info.name, pair[1].info.name))
        return Placement(*pairs[next(self._turns) % len(pairs)]) if pairs else None
