"""What distance costs one request, from its timeline.

Exposed is the time that nothing hides: from the router sending ``Prefill.Run`` to prefill
computing, and from the last page being ready to the commit. On a link of one machine all nodes read
the same monotonic clock, so moments of different nodes may be subtracted; anywhere else they may
not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Exposed:
    to_prefill_s: float  # the router sends Prefill.Run -> prefill starts computing
    to_commit_s: float  # the last page is ready -> the decode node has committed

    @property
    def total_s(self) -> float:
        return self.to_prefill_s + self.to_commit_s


def exposed_time(timeline: Mapping[str, Any] | None) -> Exposed | None:
    """None for a colocated request, and where a node's part is missing."""
    if timeline is None or timeline.get("prefill") is None:
        return None
    router, prefill, decode = (timeline[node] for node in ("router", "prefill", "decode"))
    return Exposed(
        to_prefill_s=_end_s(prefill, "queue") - _end_s(router, "prepare"),
        to_commit_s=_end_s(decode, "receive") - _end_s(prefill, "prefill"),
    )


def _end_s(part: Mapping[str, Any], name: str) -> float:
    """When a span ended, by the machine's monotonic clock."""
    span = next(span for span in part["spans"] if span["name"] == name)
    end_s: float = part["clock_s"] + span["start_s"] + span["duration_s"]
    return end_s
