"""What each arm is bound by, over RTT and rate: one small map per arm and page size."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from pdlab.conditions import Condition, rate_words
from pdlab.quantities import format_bytes, format_seconds
from pdlab.records import Cell, TransferRecord
from pdlab.report.picture import Picture, origin
from pdlab.report.style import VERDICT_COLOURS, as_png, in_order, legend_above
from pdlab.samples import best_cells

Cells = Mapping[tuple[str, Condition], Cell]


def verdict_pictures(record: TransferRecord) -> Iterator[Picture]:
    groups: dict[Condition, dict[tuple[str, Condition], Cell]] = defaultdict(dict)
    for (arm, condition), cell in best_cells(record).items():
        if cell.verdict in VERDICT_COLOURS:
            shared = replace(condition.at_any_distance, rate_bps=0.0, page_bytes=0)
            groups[shared][arm, condition] = cell
    for number, (shared, cells) in enumerate(sorted(groups.items()), start=1):
        links = [record.link[cell.link] for cell in cells.values()]
        title = f"What bounds each mode, {shared.without_rtt_and_rate}"
        yield Picture(
            name=f"verdicts-{number}",
            title=title,
            caption="The verdict over round-trip time and rate: the term whose removal would"
            " shorten the transfer most. Blank: not measured. "
            + origin(record, links, [len(cell.goodput_bps) for cell in cells.values()]),
            png=as_png(_figure(cells, title)),
        )


def _figure(cells: Cells, title: str) -> Figure:
    arms = in_order(arm for arm, _ in cells)
    pages = sorted({condition.page_bytes for _, condition in cells})
    rtts_s = sorted({condition.rtt_s for _, condition in cells})
    rates_bps = sorted({condition.rate_bps for _, condition in cells})
    size = (
        1.4 + len(pages) * max(0.4 * len(rtts_s), 1.7),
        0.9 + len(arms) * (0.28 + 0.26 * len(rates_bps)),
    )
    figure = Figure(figsize=size)
    panels = figure.subplots(len(arms), len(pages), sharex=True, sharey=True, squeeze=False)
    for row, arm in zip(panels, arms, strict=True):
        for axes, page_bytes in zip(row, pages, strict=True):
            mine = {
                condition: cell
                for (name, condition), cell in cells.items()
                if name == arm and condition.page_bytes == page_bytes
            }
            _panel(axes, mine, rtts_s, rates_bps)
            axes.set_title(f"{arm}, page {format_bytes(page_bytes)}")
    figure.supxlabel("round-trip time", fontsize=8.5)
    figure.supylabel("rate of the link", fontsize=8.5)
    shown = {cell.verdict for cell in cells.values()}
    legend_above(
        figure,
        [
            Patch(facecolor=colour, edgecolor="white", label=f"{letter}: {label}")
            for name, (label, colour, letter) in VERDICT_COLOURS.items()
            if name in shown
        ],
        title,
    )
    return figure


def _panel(
    axes: Axes,
    cells: Mapping[Condition, Cell],
    rtts_s: Sequence[float],
    rates_bps: Sequence[float],
) -> None:
    axes.set(xlim=(-0.5, len(rtts_s) - 0.5), ylim=(-0.5, len(rates_bps) - 0.5))
    axes.set_xticks(range(len(rtts_s)), [format_seconds(rtt_s) for rtt_s in rtts_s], fontsize=7)
    axes.set_yticks(range(len(rates_bps)), [rate_words(rate) for rate in rates_bps], fontsize=7)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for condition, cell in cells.items():
        x, y = rtts_s.index(condition.rtt_s), rates_bps.index(condition.rate_bps)
        _, colour, letter = VERDICT_COLOURS[cell.verdict or ""]
        axes.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=colour))
        axes.text(x, y, letter, ha="center", va="center", fontsize=7)
