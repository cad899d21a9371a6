"""Placement policies by name. The command line and error messages list the keys of ``POLICIES``."""

from collections.abc import Callable

from pdcore.errors import ConfigError
from router.placement.colocated import Colocated
from router.placement.least_loaded import LeastLoaded
from router.placement.placer import Placer
from router.placement.policy import Arm, Placement, PlacementPolicy, RequestShape
from router.placement.round_robin import RoundRobin

__all__ = [
    "Arm",
    "Placement",
    "PlacementPolicy",
    "Placer",
    "POLICIES",
    "RequestShape",
    "open_placer",
]

POLICIES: dict[str, Callable[[], PlacementPolicy]] = {
    "round_robin": RoundRobin,
    "least_loaded": LeastLoaded,
    "colocated": Colocated,
}


def open_placer(name: str) -> Placer:
    """Place by the policy ``name``; a request may still ask for the other arm (experiments)."""
    if name not in POLICIES:
        raise ConfigError(f"router.placement is {name!r}; one of {', '.join(POLICIES)}")
    if name == "colocated":
        arms = {Arm.COLOCATED: POLICIES[name](), Arm.DISAGGREGATED: RoundRobin()}
        return Placer(arms, Arm.COLOCATED)
    arms = {Arm.COLOCATED: Colocated(), Arm.DISAGGREGATED: POLICIES[name]()}
    return Placer(arms, Arm.DISAGGREGATED)
