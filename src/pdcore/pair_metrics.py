"""What Prometheus is told of each pair of nodes, as its sender knows it at scrape time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pdcore.cluster import NodeName


@dataclass(frozen=True, slots=True)
class PairState:
    """A moment of the path to one decode node; None: not known yet. ``window_bytes`` is what
    ``auto`` keeps in flight, ``credit_bytes`` what the receiver allows."""

    peer: NodeName
    rtt_s: float | None
    rate_bytes_per_s: float | None
    window_bytes: int
    credit_bytes: int
    in_flight_bytes: int
    num_stripes: int
    warmup_bytes: int


class PairSource(Protocol):
    def states(self) -> Iterable[PairState]: ...


def pair_families(states: Iterable[PairState]) -> list[Metric]:
    gauges = {
        "rtt_s": _gauge("rtt_seconds", "Smallest round trip of late."),
        "rate_bytes_per_s": _gauge("rate_bytes_per_second", "Highest delivery rate of late."),
        "window_bytes": _gauge("window_bytes", "Bytes that auto keeps in flight."),
        "credit_bytes": _gauge("credit_bytes", "Bytes in flight that the receiver allows."),
        "in_flight_bytes": _gauge("in_flight_bytes", "Bytes sent and not acknowledged."),
        "num_stripes": _gauge("stripes", "Connections that auto uses."),
    }
    warmup = CounterMetricFamily(
        "pdspan_pair_warmup_bytes", "Bytes sent to warm connections.", labels=["peer"]
    )
    for state in states:
        warmup.add_metric([state.peer], state.warmup_bytes)
        for field, family in gauges.items():
            value = getattr(state, field)
            if value is not None:
                family.add_metric([state.peer], value)
    return [*gauges.values(), warmup]


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pdspan_pair_{name}", text, labels=["peer"])
