"""What Prometheus is told: counters by outcome, gauges read at scrape time."""

import asyncio

import pytest

from pdcore.cluster import NodeLoad, NodeName
from pdcore.errors import NoCapacity, RequestCancelled
from pdcore.metrics import NodeMetrics
from pdcore.pair_metrics import PairState
from pdwire.v1.generation_pb2 import TransferReport


class Node:
    pages_shared = 2
    num_queued = 0

    def load(self) -> NodeLoad:
        return NodeLoad(self.num_queued, 3, 10, 20, 30, 40, 50, 60, num_transferring=4)


def value(metrics: NodeMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"pdspan_{name}", labels)


async def test_gauges_are_read_when_they_are_scraped() -> None:
    """A scrape comes from a thread of its own; the event loop, which owns the pool, reads."""
    node, metrics = Node(), NodeMetrics()
    metrics.show_load(node)
    await asyncio.to_thread(scrape, node, metrics)


def scrape(node: Node, metrics: NodeMetrics) -> None:
    expected = {
        "free": 10,
        "cached": 20,
        "reserved": 30,
        "used": 40,
        "draining": 50,
        "promised": 60,
        "shared": 2,
    }
    assert {state: value(metrics, "pages", state=state) for state in expected} == expected
    assert (value(metrics, "queued"), value(metrics, "running")) == (0, 3)
    assert value(metrics, "transferring") == 4
    node.num_queued = 7
    assert value(metrics, "queued") == 7


class Paths:
    def __init__(self) -> None:
        self.known = [PairState(NodeName("d0"), 0.05, 1e8, 64, 256, 7, 2, 99)]

    def states(self) -> list[PairState]:
        return self.known


async def test_a_pair_that_goes_takes_its_gauges_along() -> None:
    paths, metrics = Paths(), NodeMetrics()
    metrics.show_pairs(paths)
    await asyncio.to_thread(scrape_pairs, paths, metrics)


def scrape_pairs(paths: Paths, metrics: NodeMetrics) -> None:
    gauges = {
        "rtt_seconds": 0.05,
        "rate_bytes_per_second": 1e8,
        "window_bytes": 64,
        "credit_bytes": 256,
        "in_flight_bytes": 7,
        "stripes": 2,
        "warmup_bytes_total": 99,
    }
    assert {name: value(metrics, f"pair_{name}", peer="d0") for name in gauges} == gauges
    paths.known = [PairState(NodeName("d1"), None, None, 64, 256, 0, 1, 0)]
    assert value(metrics, "pair_window_bytes", peer="d0") is None
    assert value(metrics, "pair_rtt_seconds", peer="d1") is None  # not known: not shown
    assert value(metrics, "pair_window_bytes", peer="d1") == 64


def test_two_nodes_in_one_process_do_not_share_counters() -> None:
    one, other = NodeMetrics(), NodeMetrics()
    one.preemptions.inc()
    assert value(one, "preemptions_total") == 1
    assert value(other, "preemptions_total") == 0


def test_a_request_is_counted_by_how_it_ended() -> None:
    metrics = NodeMetrics()
    with metrics.count_request():
        pass
    with pytest.raises(NoCapacity), metrics.count_request():
        raise NoCapacity("no room")
    with pytest.raises(asyncio.CancelledError), metrics.count_request():
        raise asyncio.CancelledError
    assert value(metrics, "requests_total", outcome="finished") == 1
    assert value(metrics, "requests_total", outcome="NoCapacity") == 1
    assert value(metrics, "requests_total", outcome="CancelledError") == 1


def test_a_task_group_that_failed_is_counted_by_its_cause() -> None:
    metrics = NodeMetrics()
    errors = [RequestCancelled("an echo"), NoCapacity("no room")]
    with pytest.raises(ExceptionGroup), metrics.count_request():
        raise ExceptionGroup("tasks", errors)
    assert value(metrics, "requests_total", outcome="NoCapacity") == 1
    assert value(metrics, "requests_total", outcome="ExceptionGroup") is None


def test_a_committed_transfer_is_counted_by_mode_with_its_shares() -> None:
    metrics = NodeMetrics()
    report = TransferReport(
        mode="bulk",
        wire_bytes=100,
        producer_s=1,
        prepare_s=2,
        window_s=3,
        transport_s=4,
        verdict="rtt_bound",
    )
    metrics.count_transfer(report)
    metrics.count_transfer(report)
    assert value(metrics, "transfers_total", mode="bulk", outcome="committed") == 2
    assert value(metrics, "transfer_bytes_total", mode="bulk") == 200
    assert value(metrics, "transfer_verdicts_total", mode="bulk", verdict="rtt_bound") == 2
    shares = ("producer", "prepare", "window", "transport")
    seconds = [value(metrics, "transfer_seconds_total", mode="bulk", share=s) for s in shares]
    assert seconds == [2, 4, 6, 8]


def test_a_transfer_that_failed_is_counted_by_mode_and_cause() -> None:
    metrics = NodeMetrics()
    metrics.count_failed_transfer("bulk", NoCapacity("no room"))
    metrics.count_failed_transfer("bulk", asyncio.CancelledError())
    assert value(metrics, "transfers_total", mode="bulk", outcome="NoCapacity") == 1
    assert value(metrics, "transfers_total", mode="bulk", outcome="CancelledError") == 1
    assert value(metrics, "transfers_total", mode="bulk", outcome="committed") is None
