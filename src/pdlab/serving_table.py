"""A serving record as a table for people: what each arm took under each condition, in medians.

Whether a difference is more than noise is another question, for ``pdspan lab compare``.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, TypeAlias

from pdlab.compare_text import aligned
from pdlab.conditions import Condition, condition_of
from pdlab.quantities import format_seconds
from pdlab.records import RequestRecord, ServingRecord

Group: TypeAlias = tuple[Condition, str]

HEADINGS = ("arm", "condition", "requests", "TTFT", "ITL", "exposed", "transfer", "goodput")


def serving_table(record: ServingRecord) -> str:
    """A row per arm and condition; failed and warm-up requests are left out."""
    groups: dict[Group, list[RequestRecord]] = defaultdict(list)
    for request in record.requests:
        if request.status == "ok" and not request.warmup:
            link = record.link[request.link]
            condition = condition_of(link, at_once=request.concurrency)
            groups[condition, request.arm].append(request)
    rows = [_row(arm, condition, groups[condition, arm]) for condition, arm in sorted(groups)]
    return "\n".join(aligned([HEADINGS, *rows]))


def aggregate_bytes_per_s(requests: Sequence[RequestRecord]) -> float | None:
    """KV bytes of one block over the time from its first arrival to its last first token."""
    shipped = [r for r in requests if r.ttft_s is not None and _transfer(r)]
    if not shipped:
        return None
    start_s = min(r.scheduled_s for r in shipped)
    end_s = max(r.scheduled_s + (r.ttft_s or 0.0) for r in shipped)
    num_bytes: int = sum(_transfer(r)["page_bytes"] for r in shipped)
    return num_bytes / (end_s - start_s)


def _row(arm: str, condition: Condition, requests: Sequence[RequestRecord]) -> tuple[str, ...]:
    return (
        arm,
        str(condition),
        str(len(requests)),
        _seconds(r.ttft_s for r in requests),
        _seconds(gap_s for r in requests for gap_s in r.itl_s),
        _seconds(r.exposed_s for r in requests),
        _seconds(_transfer(r).get("duration_s") for r in requests),
        _goodput(requests),
    )


def _goodput(requests: Iterable[RequestRecord]) -> str:
    blocks: dict[int, list[RequestRecord]] = defaultdict(list)
    for request in requests:
        blocks[request.repetition].append(request)
    rates = [rate for block in blocks.values() if (rate := aggregate_bytes_per_s(block))]
    return f"{median(rates) / 1e6:.1f} MB/s" if rates else "-"


def _seconds(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return format_seconds(median(known)) if known else "-"


def _transfer(request: RequestRecord) -> Mapping[str, Any]:
    return (request.timeline or {}).get("transfer") or {}
