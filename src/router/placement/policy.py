"""The seam of placement: which prefill node and which decode node serve a request.

A policy sees one immutable view and returns one choice. It does no I/O, reads no clock and touches
no pages; the only state that it may keep is its own (a turn counter).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pdcore.cluster import ClusterView, NodeView


class Arm(StrEnum):
    """The two ways to serve a request that an experiment compares."""

    DISAGGREGATED = "disaggregated"
    COLOCATED = "colocated"


@dataclass(frozen=True, slots=True)
class RequestShape:
    """What a placement may depend on; never the text."""

    num_prompt_tokens: int
    max_tokens: int
    num_choices: int


@dataclass(frozen=True, slots=True)
class Placement:
    """``prefill`` None: the decode node prefills by itself."""

    prefill: NodeView | None
    decode: NodeView


class PlacementPolicy(Protocol):
    def choose(self, shape: RequestShape, cluster: ClusterView) -> Placement | None:
        """None when no node can take the request now."""
        ...
