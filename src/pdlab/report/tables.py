"""The numbers behind the plots: as CSV in full precision, and on the page as people read them."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from io import StringIO
from statistics import median

from pdlab.conditions import Condition
from pdlab.quantities import format_bits_per_s, format_seconds
from pdlab.records import (
    Cell,
    LinkRecord,
    Record,
    RequestRecord,
    ServingRecord,
    Shares,
    TransferRecord,
)
from pdlab.report.model_plot import error_of
from pdlab.report.picture import interval_words
from pdlab.samples import METRICS, Metric, request_groups
from pdlab.stats import median_interval
from pdlab.transfer.table import least_moved_bytes, notes_of

SHARES = tuple(field.name for field in fields(Shares))

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Table:
    """``rows`` hold plain numbers in the units that ``columns`` name."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def to_csv(self) -> bytes:
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if value is None else value for value in row] for row in self.rows)
        return text.getvalue().encode()


def tables_of(record: Record) -> list[Table]:
    links = _links_table(record.link)
    if isinstance(record, TransferRecord):
        return [_cells_table(record), links]
    return [_arms_table(record), links]


def readable(column: str, value: Value) -> str:
    """A value as the page shows it, by the unit in its column's name."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else _readable_number(column, value)


def _readable_number(column: str, number: float) -> str:
    if column.endswith("_bps"):
        return format_bits_per_s(number)
    if column.endswith("_s"):
        return format_seconds(number)
    return f"{number:,}" if isinstance(number, int) else f"{number:.3g}"


DERIVED = (
    *("repetitions", "least_moved_bytes", "measured_over_predicted_less_1"),
    *SHARES,
    *("all_goodput_bps", "notes"),
)
NOT_IN_A_CELL_ROW = ("goodput_bps", "shares", "moved_bytes", "digest", "notes")


def _cells_table(record: TransferRecord) -> Table:
    plain = [f.name for f in fields(Cell) if f.name not in NOT_IN_A_CELL_ROW]
    rows = [(*(getattr(cell, name) for name in plain), *_derived(cell)) for cell in record.cells]
    return Table("cells", "Every cell", (*plain, *DERIVED), tuple(rows))


def _derived(cell: Cell) -> list[Value]:
    shares = asdict(cell.shares) if cell.shares else {}
    return [
        len(cell.goodput_bps),
        least_moved_bytes(cell),
        error_of(cell),
        *(shares.get(name) for name in SHARES),
        " ".join(f"{value:.0f}" for value in cell.goodput_bps),
        "; ".join(notes_of(cell)),
    ]


def _links_table(links: Sequence[LinkRecord]) -> Table:
    columns = ("link", *(f.name for f in fields(LinkRecord)))
    rows = [
        (i, *("; ".join(v) if isinstance(v, tuple) else v for v in asdict(link).values()))
        for i, link in enumerate(links)
    ]
    return Table("links", "Links, as set and as measured", columns, tuple(rows))


def _arms_table(record: ServingRecord) -> Table:
    columns = (
        *("arm", "condition", "rtt_s", "rate_bps", "concurrency"),
        *("blocks", "requests", "failed", "kv_bytes"),
        *(f"{side}{name}" for name in METRICS for side in ("", "low_", "high_")),
    )
    rows = tuple(
        _arm_row(arm, condition, requests)
        for (arm, condition), requests in sorted(request_groups(record).items())
    )
    title = f"Every arm on every link: medians; low and high: {_intervals(record)}"
    return Table("arms", title, columns, rows)


def _intervals(record: ServingRecord) -> str:
    groups = request_groups(record).values()
    return interval_words(len({r.repetition for r in requests}) for requests in groups)


def _arm_row(arm: str, at: Condition, requests: Sequence[RequestRecord]) -> tuple[Value, ...]:
    good = [request for request in requests if request.status == "ok"]
    sent = [request.sent_bytes for request in good if request.sent_bytes is not None]
    return (
        arm,
        str(at),
        at.rtt_s,
        at.rate_bps or None,
        at.concurrency,
        len({request.repetition for request in requests}),
        len(requests),
        len(requests) - len(good),
        int(median(sent)) if sent else None,
        *(value for metric in METRICS.values() for value in _estimate(metric, good)),
    )


def _estimate(metric: Metric, requests: Sequence[RequestRecord]) -> tuple[Value, Value, Value]:
    """Median over blocks, and its interval."""
    blocks: dict[int, list[float]] = {}
    for request in requests:
        value = metric.of(request)
        if value is not None:
            blocks.setdefault(request.repetition, []).append(value)
    if not blocks:
        return None, None, None
    medians = [median(values) for values in blocks.values()]
    interval = median_interval(medians)
    return median(medians), interval.low, interval.high
