"""Records as what statistics need: one value per block, for each arm under each condition.

A condition is all that two arms of a comparison must share. The value of a block is the median of
its requests, or the one repetition of a transfer: requests within a block are not independent, the
blocks are. Failed and warm-up requests and void cells are left out, and counted.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from kvtransfer.limits import MODES
from pdcore.errors import ConfigError
from pdlab.quantities import format_bits_per_s, format_bytes, format_seconds
from pdlab.records import (
    ArmRecord,
    Cell,
    LinkRecord,
    Record,
    RequestRecord,
    ServingRecord,
    TransferRecord,
)


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """Sizes are 0 for serving: its requests have the sizes of the workload."""

    kind: str
    rtt_s: float
    rate_bps: float  # 0: as fast as it goes
    loss: float
    jitter_s: float
    queue_bytes: int  # 0: chosen by the link
    buffers: str
    congestion: str
    slow_start_after_idle: bool
    page_bytes: int
    payload_bytes: int
    concurrency: int

    def __str__(self) -> str:
        words = [
            f"{format_seconds(self.rtt_s)} RTT",
            format_bits_per_s(self.rate_bps) if self.rate_bps else "unlimited rate",
            f"{self.kind} link" if self.kind != "tun" else "",
            f"{100 * self.loss:g} % loss" if self.loss else "",
            f"{format_seconds(self.jitter_s)} jitter" if self.jitter_s else "",
            f"queue {format_bytes(self.queue_bytes)}" if self.queue_bytes else "",
            f"{self.buffers} buffers" if self.buffers != "large" else "",
            self.congestion,
            "" if self.slow_start_after_idle else "no slow start after idle",
            f"page {format_bytes(self.page_bytes)}" if self.page_bytes else "",
            format_bytes(self.payload_bytes) if self.payload_bytes else "",
            f"{self.concurrency} at once" if self.concurrency > 1 else "",
        ]
        return ", ".join(word for word in words if word)


@dataclass(frozen=True, slots=True)
class Samples:
    """``results``: what the arm computed or moved, by request, equal in every honest arm."""

    condition: Condition
    arm: ArmRecord
    blocks: Mapping[int, float]
    results: Mapping[str, Hashable]
    links: tuple[LinkRecord, ...]
    num_failed: int = 0
    verifies: bool = True  # False: a yardstick, which checks nothing
    unverified: bool = False  # should have been verified, and was not
    void: str | None = None

    @property
    def place(self) -> str:
        return f"{self.arm.name} at {self.condition}"


Pairs: TypeAlias = list[tuple[Samples, Samples]]  # of the same condition


@dataclass(frozen=True, slots=True)
class Metric:
    """``of`` reads a value from a request; None where it has none."""

    name: str
    title: str
    unit: str
    higher_is_better: bool
    of: Callable[[RequestRecord], float | None]


def _transfer_s(request: RequestRecord) -> float | None:
    transfer = (request.timeline or {}).get("transfer") or {}
    return transfer.get("duration_s")


GOODPUT = Metric("goodput_bps", "goodput", "bit/s", True, lambda request: None)

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("ttft_s", "time to first token", "s", False, lambda r: r.ttft_s),
        Metric("e2e_s", "end to end", "s", False, lambda r: r.e2e_s),
        Metric("itl_s", "inter-token latency", "s", False, lambda r: _median(r.itl_s)),
        Metric("exposed_s", "exposed transfer time", "s", False, lambda r: r.exposed_s),
        Metric("transfer_s", "transfer time", "s", False, _transfer_s),
    )
}


def metric_named(name: str | None, record: Record) -> Metric:
    """The metric called so, or by default the primary one of this kind of record."""
    known = {GOODPUT.name: GOODPUT} if isinstance(record, TransferRecord) else METRICS
    if name is None:
        return next(iter(known.values()))
    if name not in known:
        raise ConfigError(f"--metric is {name!r}; for this kind of record {', '.join(known)}")
    return known[name]


def samples_of(record: Record, metric: Metric) -> list[Samples]:
    if isinstance(record, TransferRecord):
        return _transfer_samples(record)
    return _serving_samples(record, metric)


def condition_of(link: LinkRecord, *, page: int = 0, payload: int = 0, at_once: int) -> Condition:
    return Condition(
        kind=link.kind,
        rtt_s=link.rtt_s,
        rate_bps=link.rate_bps or 0.0,
        loss=link.loss,
        jitter_s=link.jitter_s,
        queue_bytes=link.queue_bytes or 0,
        buffers=link.buffers,
        congestion=link.congestion,
        slow_start_after_idle=link.slow_start_after_idle,
        page_bytes=page,
        payload_bytes=payload,
        concurrency=at_once,
    )


def cell_condition(record: TransferRecord, cell: Cell) -> Condition:
    return condition_of(
        record.link[cell.link],
        page=cell.page_bytes,
        payload=cell.payload_bytes,
        at_once=cell.concurrency,
    )


def _transfer_samples(record: TransferRecord) -> list[Samples]:
    """Of an arm's cells that differ in nothing but the number of connections, the fastest."""
    best: dict[tuple[str, Condition], Cell] = {}
    for cell in record.cells:
        key = cell.arm, cell_condition(record, cell)
        if key not in best or cell.median_goodput_bps > best[key].median_goodput_bps:
            best[key] = cell
    return [_cell_samples(record, condition, cell) for (_, condition), cell in best.items()]


def _cell_samples(record: TransferRecord, condition: Condition, cell: Cell) -> Samples:
    return Samples(
        condition=condition,
        arm=ArmRecord(cell.arm, cell.arm),
        blocks=dict(enumerate(cell.goodput_bps)),
        results={"payload": cell.digest} if cell.digest is not None else {},
        links=(record.link[cell.link],),
        verifies=cell.arm in MODES or cell.verified,
        unverified=cell.arm in MODES and not cell.verified,
        void=cell.void,
    )


def _serving_samples(record: ServingRecord, metric: Metric) -> list[Samples]:
    grouped: dict[tuple[str, Condition], list[RequestRecord]] = defaultdict(list)
    for request in record.requests:
        if not request.warmup:
            link = record.link[request.link]
            key = request.arm, condition_of(link, at_once=request.concurrency)
            grouped[key].append(request)
    arms = {arm.name: arm for arm in record.header.arms}
    return [
        _request_samples(record, arms.get(name, ArmRecord(name)), condition, requests, metric)
        for (name, condition), requests in grouped.items()
    ]


def _request_samples(
    record: ServingRecord,
    arm: ArmRecord,
    condition: Condition,
    requests: Iterable[RequestRecord],
    metric: Metric,
) -> Samples:
    values: dict[int, list[float]] = defaultdict(list)
    results: dict[str, Hashable] = {}
    places: set[int] = set()
    num_failed = 0
    for request in requests:
        places.add(request.link)
        if request.status != "ok":
            num_failed += 1
            continue
        key = f"repetition {request.repetition} request {request.index}"
        results[key] = request.token_ids
        value = metric.of(request)
        if value is not None:
            values[request.repetition].append(value)
    return Samples(
        condition=condition,
        arm=arm,
        blocks={block: median(values[block]) for block in sorted(values)},
        results=results,
        links=tuple(record.link[place] for place in sorted(places)),
        num_failed=num_failed,
    )


def _median(values: tuple[float, ...]) -> float | None:
    return median(values) if values else None
