"""Prometheus metrics of a prefill or decode node.

Gauges are read at scrape time from the node's own state, so they cannot drift from it. The router's
metrics are its own (``router.metrics``).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pdcore.cluster import NodeLoad
from pdcore.errors import ConfigError, root_cause
from pdcore.pair_metrics import PairSource, pair_families
from pdcore.rpc import split_address
from pdcore.settings import TlsSettings
from pdwire.v1.generation_pb2 import TransferReport

SCRAPE_S = 5.0  # how long a scrape waits for the event loop
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class LoadSource(Protocol):
    def load(self) -> NodeLoad: ...

    @property
    def pages_shared(self) -> int: ...


@dataclass(frozen=True, slots=True)
class KvUse:
    """Tokens that KV memory set aside for sequences has room for, and those whose KV is there;
    shared ones count once."""

    reserved_tokens: int
    live_tokens: int


class NodeMetrics:
    """Counters and histograms that the node's code feeds; see each one's help text."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests by outcome.", "outcome")
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens computed here.")
        self.cached_tokens = self._counter("cached_tokens", "Prompt tokens found in the cache.")
        self.generated_tokens = self._counter("generated_tokens", "Tokens sampled here.")
        self.preemptions = self._counter("preemptions", "Sequences preempted for pages.")
        self.copied_pages = self._counter("copied_pages", "KV pages copied on a write.")
        self.step_s = self._histogram("step_seconds", "Time of one model step.")
        self.first_token_s = self._histogram(
            "first_token_seconds", "From a request's arrival here to its first token."
        )
        self.inter_token_s = self._histogram(
            "inter_token_seconds", "Between two tokens of one sequence."
        )
        self.transfers = self._counter("transfers", "Transfers.", "mode", "outcome")
        self.transfer_verdicts = self._counter(
            "transfer_verdicts", "Committed transfers by what bound them.", "mode", "verdict"
        )
        self.transfer_bytes = self._counter("transfer_bytes", "KV payload bytes sent.", "mode")
        self.transfer_s = self._counter(
            "transfer_seconds", "Where transfers' time went.", "mode", "share"
        )

    def show_load(self, source: LoadSource) -> None:
        """Add the gauges that are read from the node at scrape time. Call it on the event loop,
        which owns what they show: a scrape, on its own thread, has the loop read them."""
        self._show(lambda: _load_families(source))

    def show_kv_use(self, read: Callable[[], KvUse]) -> None:
        """Add the gauges of a decode node's internal fragmentation, in the same way."""
        self._show(lambda: _kv_use_families(read()))

    def show_pairs(self, source: PairSource) -> None:
        """Add the gauges of a prefill node's pairs, in the same way."""
        self._show(lambda: pair_families(source.states()))

    @contextmanager
    def count_request(self) -> Iterator[None]:
        """Count one request as finished or, if the block raises, by the error's class."""
        try:
            yield
        except BaseException as error:
            self.requests.labels(_outcome(error)).inc()
            raise
        self.requests.labels("finished").inc()

    def count_transfer(self, report: TransferReport) -> None:
        """Count a committed transfer, its verdict and its four shares."""
        self.transfers.labels(report.mode, "committed").inc()
        self.transfer_verdicts.labels(report.mode, report.verdict).inc()
        self.transfer_bytes.labels(report.mode).inc(report.wire_bytes)
        for share in ("producer", "prepare", "window", "transport"):
            self.transfer_s.labels(report.mode, share).inc(getattr(report, f"{share}_s"))

    def count_failed_transfer(self, mode: str, error: BaseException) -> None:
        """Count a transfer that was not committed, by the error's class."""
        self.transfers.labels(mode, _outcome(error)).inc()

    def serve(self, address: str, tls: TlsSettings) -> None:
        """Start the scrape endpoint on a thread of its own."""
        host, port = split_address(address)
        try:
            start_http_server(port, host, self.registry, certfile=tls.cert, keyfile=tls.key)
        except OSError as error:
            raise ConfigError(f"metrics: cannot listen on {address}: {error.strerror}") from None

    def _show(self, read: Callable[[], list[Metric]]) -> None:
        self.registry.register(_LoopCollector(read))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"pdspan_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"pdspan_{name}", text, buckets=SECONDS, registry=self.registry)


def _outcome(error: BaseException) -> str:
    cause = root_cause(error) if isinstance(error, BaseExceptionGroup) else error
    return type(cause).__name__


class _LoopCollector(Collector):
    """Has the event loop read what it owns."""

    def __init__(self, read: Callable[[], list[Metric]]) -> None:
        self._read = read
        self._loop = asyncio.get_running_loop()

    def collect(self) -> Iterable[Metric]:
        return asyncio.run_coroutine_threadsafe(self._read_there(), self._loop).result(SCRAPE_S)

    async def _read_there(self) -> list[Metric]:
        return self._read()


def _load_families(source: LoadSource) -> list[Metric]:
    load = source.load()
    pages = GaugeMetricFamily("pdspan_pages", "KV pages by state.", labels=["state"])
    for state in ("free", "cached", "reserved", "used", "draining", "promised"):
        pages.add_metric([state], getattr(load, f"pages_{state}"))
    pages.add_metric(["shared"], source.pages_shared)
    return [
        pages,
        _gauge("queued", "Requests that wait for pages.", load.num_queued),
        _gauge("running", "Sequences or prompts that compute.", load.num_running),
        _gauge("transferring", "Requests whose KV is on its way.", load.num_transferring),
    ]


def _kv_use_families(use: KvUse) -> list[Metric]:
    tokens = GaugeMetricFamily(
        "pdspan_kv_tokens",
        "Tokens that memory set aside for sequences has room for (reserved), and holds (live).",
        labels=["state"],
    )
    tokens.add_metric(["reserved"], use.reserved_tokens)
    tokens.add_metric(["live"], use.live_tokens)
    return [tokens]


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pdspan_{name}", text, value=value)
