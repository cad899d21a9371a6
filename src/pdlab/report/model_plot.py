"""The first-principles model against the measurement: on the diagonal where it tells the truth."""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from pdlab.conditions import rate_words
from pdlab.quantities import format_bytes
from pdlab.records import Cell, TransferRecord
from pdlab.report.picture import Picture, origin
from pdlab.report.style import (
    GREY,
    arm_lines,
    arm_style,
    as_png,
    in_order,
    legend_beside,
    plain_ticks,
)
from pdlab.samples import best_cells

TOLERANCE = 0.15


def model_pictures(record: TransferRecord) -> Iterator[Picture]:
    cells = [
        cell
        for cell in best_cells(record).values()
        if cell.predicted_bps and cell.median_goodput_bps > 0 and not cell.void
    ]
    if not cells:
        return
    links = [record.link[cell.link] for cell in cells]
    counts = [len(cell.goodput_bps) for cell in cells]
    title = _title(cells)
    yield Picture(
        name="predicted-and-measured",
        title=title,
        caption=f"Median goodput of every cell against what the model predicts for it. Band: within"
        f" {100 * TOLERANCE:g} %, where {_within(cells)} lie: {_within_by_arm(cells)}."
        f" {origin(record, links, counts)}",
        png=as_png(_figure(cells, title)),
    )


def error_of(cell: Cell) -> float | None:
    """Measured over predicted, less 1."""
    return cell.median_goodput_bps / cell.predicted_bps - 1 if cell.predicted_bps else None


def _within(cells: Sequence[Cell]) -> str:
    good = sum(abs(error_of(cell) or 0.0) <= TOLERANCE for cell in cells)
    return f"{good} of {len(cells)}"


def _within_by_arm(cells: Sequence[Cell]) -> str:
    arms = in_order(cell.arm for cell in cells)
    return ", ".join(f"{arm} {_within([c for c in cells if c.arm == arm])}" for arm in arms)


def _title(cells: Sequence[Cell]) -> str:
    rates = sorted({cell.rate_bps or 0.0 for cell in cells})  # 0: as fast as it goes
    payloads = sorted({cell.payload_bytes for cell in cells})
    words = [*map(rate_words, rates), *map(format_bytes, payloads)]
    return f"Predicted against measured, {', '.join(words)}"


def _figure(cells: Sequence[Cell], title: str) -> Figure:
    arms = in_order(cell.arm for cell in cells)
    figure = Figure(figsize=(5.4, 3.9))
    axes = figure.subplots()
    values = [v / 1e9 for c in cells for v in (c.predicted_bps or 0.0, c.median_goodput_bps)]
    ends = [min(values) / 1.6, max(values) * 1.6]
    low, high = ([factor * end for end in ends] for factor in (1 - TOLERANCE, 1 + TOLERANCE))
    axes.fill_between(ends, low, high, color="#eeeeee", zorder=0)
    axes.plot(ends, ends, color=GREY, linewidth=0.8)
    for place, arm in enumerate(arms):
        style, mine = arm_style(arm, place), [cell for cell in cells if cell.arm == arm]
        x = [(cell.predicted_bps or 0.0) / 1e9 for cell in mine]
        y = [cell.median_goodput_bps / 1e9 for cell in mine]
        axes.plot(x, y, style.marker, color=style.colour, markersize=5, alpha=0.85, mew=0.8)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set(xlabel="predicted goodput (Gbit/s)", ylabel="measured goodput (Gbit/s)")
    plain_ticks(axes.xaxis, values)
    plain_ticks(axes.yaxis, values)
    legend_beside(figure, arm_lines(arms), title)
    return figure
