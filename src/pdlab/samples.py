"""Records as what statistics need: one value per block, for each arm under each condition.

The value of a block is the median of its requests, or the one repetition of a transfer: requests
within a block are not independent, the blocks are. Failed and warm-up requests are left out.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from kvtransfer.limits import MODES
from pdcore.errors import ConfigError
from pdlab.conditions import Condition, condition_of, condition_of_cell
from pdlab.records import (
    ArmRecord,
    Cell,
    LinkRecord,
    Record,
    RequestRecord,
    ServingRecord,
    TransferRecord,
)


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


def best_cells(record: TransferRecord) -> dict[tuple[str, Condition], Cell]:
    """Of an arm's cells that differ in nothing but the number of connections, the fastest."""
    best: dict[tuple[str, Condition], Cell] = {}
    for cell in record.cells:
        key = cell.arm, condition_of_cell(record, cell)
        if key not in best or cell.median_goodput_bps > best[key].median_goodput_bps:
            best[key] = cell
    return best


def request_groups(record: ServingRecord) -> dict[tuple[str, Condition], list[RequestRecord]]:
    """What counts of a run, warm-up aside, by arm and condition."""
    groups: dict[tuple[str, Condition], list[RequestRecord]] = defaultdict(list)
    for request in record.requests:
        if not request.warmup:
            link = record.link[request.link]
            groups[request.arm, condition_of(link, at_once=request.concurrency)].append(request)
    return groups


def median_of_blocks(samples: Samples) -> float:
    return median(samples.blocks.values())


def _transfer_samples(record: TransferRecord) -> list[Samples]:
    return [
        _cell_samples(record, condition, cell)
        for (_, condition), cell in best_cells(record).items()
    ]


def _cell_samples(record: TransferRecord, condition: Condition, cell: Cell) -> Samples:
    """What arrived of a payload that was cut short by its time limit equals no other arm's."""
    whole = cell.digest is not None and not cell.moved_bytes
    return Samples(
        condition=condition,
        arm=ArmRecord(cell.arm, cell.arm),
        blocks=dict(enumerate(cell.goodput_bps)),
        results={"payload": cell.digest} if whole else {},
        links=(record.link[cell.link],),
        verifies=cell.arm in MODES or cell.verified,
        unverified=cell.arm in MODES and not cell.verified,
        void=cell.void,
    )


def _serving_samples(record: ServingRecord, metric: Metric) -> list[Samples]:
    arms = {arm.name: arm for arm in record.header.arms}
    return [
        _request_samples(record, arms.get(name, ArmRecord(name)), condition, requests, metric)
        for (name, condition), requests in request_groups(record).items()
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
        results[_place_of(request)] = request.token_ids
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


def _place_of(request: RequestRecord) -> str:
    """Places of two runs are equal only where their prompts are."""
    prompt = f" prompt {request.prompt_digest}" if request.prompt_digest else ""
    return f"repetition {request.repetition} request {request.index}{prompt}"


def _median(values: tuple[float, ...]) -> float | None:
    return median(values) if values else None
