"""A serving record as a table for people: what each arm took under each condition, in medians.

Whether a difference is more than noise is another question, for ``pdspan lab compare``.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from pdlab.aggregate_rate import aggregate_bytes_per_s
from pdlab.compare_text import aligned
from pdlab.conditions import Condition
from pdlab.quantities import format_seconds
from pdlab.records import RequestRecord, ServingRecord
from pdlab.samples import request_groups

HEADINGS = ("arm", "condition", "requests", "TTFT", "ITL", "exposed", "transfer", "goodput")


def serving_table(record: ServingRecord) -> str:
    """A row per arm and condition; failed and warm-up requests are left out."""
    good = {
        (condition, arm): [request for request in requests if request.status == "ok"]
        for (arm, condition), requests in request_groups(record).items()
    }
    rows = [_row(arm, condition, good[condition, arm]) for condition, arm in sorted(good)]
    return "\n".join(aligned([HEADINGS, *rows]))


def _row(arm: str, condition: Condition, requests: Sequence[RequestRecord]) -> tuple[str, ...]:
    return (
        arm,
        str(condition),
        str(len(requests)),
        _seconds(r.ttft_s for r in requests),
        _seconds(gap_s for r in requests for gap_s in r.itl_s),
        _seconds(r.exposed_s for r in requests),
        _seconds(_transfer(r).get("duration_s") for r in requests),
        _rate(aggregate_bytes_per_s(requests)),
    )


def _seconds(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return format_seconds(median(known)) if known else "-"


def _rate(bytes_per_s: float | None) -> str:
    return f"{bytes_per_s / 1e6:.1f} MB/s" if bytes_per_s else "-"


def _transfer(request: RequestRecord) -> Mapping[str, Any]:
    return (request.timeline or {}).get("transfer") or {}
