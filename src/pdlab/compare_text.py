"""A comparison as text for people, and as one JSON object for programs."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from pdlab.compare import Comparison, Row
from pdlab.quantities import format_bits_per_s, format_seconds
from pdlab.samples import Metric
from pdlab.stats import PooledEffect

Written = Callable[[float], str]

HEADINGS = ("A", "B", "condition", "median A", "median B", "B / A", "95 % interval", "p", "")


def comparison_text(comparison: Comparison) -> str:
    metric = comparison.metric
    better = "higher" if metric.higher_is_better else "lower"
    lines = [f"{metric.title}: {better} is better; n counts blocks; p is adjusted for all rows"]
    rows = [_row_text(row, metric) for row in comparison.rows]
    overall = [] if comparison.overall is None else [_overall_text(comparison.overall)]
    lines += aligned([HEADINGS, *rows, *overall])
    lines += [f"NOT IDENTICAL: {mismatch}" for mismatch in comparison.mismatches]
    lines += [f"warning: {doubt}" for doubt in comparison.doubts]
    return "\n".join(lines)


def comparison_object(comparison: Comparison) -> dict[str, Any]:
    return {
        "metric": comparison.metric.name,
        "higher_is_better": comparison.metric.higher_is_better,
        "identical": not comparison.mismatches,
        "found": comparison.found,
        "rows": [{**asdict(row), "found": row.found} for row in comparison.rows],
        "overall": asdict(comparison.overall) if comparison.overall else None,
        "mismatches": list(comparison.mismatches),
        "warnings": list(comparison.doubts),
    }


def written(metric: Metric) -> Written:
    """How a value of ``metric`` is written."""
    return format_bits_per_s if metric.unit == "bit/s" else format_seconds


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _row_text(row: Row, metric: Metric) -> tuple[str, ...]:
    effect, write = row.effect, written(metric)
    return (
        row.arm_a,
        row.arm_b,
        str(row.condition),
        f"{write(effect.median_a)} (n={effect.num_a})",
        f"{write(effect.median_b)} (n={effect.num_b})",
        *_ratio_text(row),
        f"{row.adjusted_p:.3g}",
        "different" if row.found else "",
    )


def _overall_text(overall: PooledEffect) -> tuple[str, ...]:
    interval = overall.ratio_interval
    return (
        *("", "", f"all {overall.num_rows} together (geometric mean)", "", ""),
        f"{overall.ratio:.3g}",
        f"{interval.low:.3g} to {interval.high:.3g}",
        f"{overall.p:.3g}",
        "different" if overall.found else "",
    )


def _ratio_text(row: Row) -> tuple[str, str]:
    ratio, interval = row.effect.ratio, row.effect.ratio_interval
    if ratio is None or interval is None:
        return "-", "A's median is 0"
    return f"{ratio:.3g}", f"{interval.low:.3g} to {interval.high:.3g}"
