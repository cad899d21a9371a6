"""Places one request: the cluster's policy, or the arm that the request asks for.

Also says whether any request could be placed, and if not, in words that an operator can act on:
that is what ``/health`` shows and what the error of a refused request says.
"""

from collections.abc import Mapping, Sequence

from pdcore.cluster import ClusterView, NodeRole, NodeView
from pdcore.errors import NoCapacity
from router.placement.policy import Arm, Placement, PlacementPolicy, RequestShape


class Placer:
    """``default`` is the arm of a request that asks for none."""

    def __init__(self, policies: Mapping[Arm, PlacementPolicy], default: Arm) -> None:
        self._policies = policies
        self._default = default

    def place(self, shape: RequestShape, cluster: ClusterView, arm: Arm | None) -> Placement:
        """Raises NoCapacity with the reason."""
        arm = arm or self._default
        placement = self._policies[arm].choose(shape, cluster)
        if placement is None:
            raise NoCapacity(_obstacle(cluster, arm) or "no node takes this request now")
        return placement

    def obstacle(self, cluster: ClusterView) -> str | None:
        """Why no request can be served now; None when one can."""
        return _obstacle(cluster, self._default)


def _obstacle(cluster: ClusterView, arm: Arm) -> str | None:
    missing = _missing(NodeRole.DECODE, cluster.decode, cluster.strangers)
    if missing is None and arm is Arm.DISAGGREGATED:
        missing = _missing(NodeRole.PREFILL, cluster.prefill, cluster.strangers)
        if missing is None and not cluster.pairs():
            missing = "no prefill node has a data path to a decode node"
    return missing


def _missing(
    role: NodeRole, nodes: Sequence[NodeView], strangers: Sequence[NodeView]
) -> str | None:
    if nodes:
        return f"every {role} node is stopping" if all(node.draining for node in nodes) else None
    for stranger in strangers:
        info = stranger.info
        if info.role is role:
            return f"no {role} node serves this router's model: {info.name} serves {info.model!r}"
    return f"no {role} node answers"
