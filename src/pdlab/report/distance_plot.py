"""The experiment's first question: what distance does to each arm. A metric against RTT.

One figure for what the arms share but for RTT and page size, a panel for each page size. Markers
are medians, whiskers their interval (of few values the range). Arms that keep up lie on one line:
their share of raw TCP's goodput tells them apart.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pdlab.conditions import Condition
from pdlab.quantities import format_bits_per_s, format_bytes
from pdlab.records import Record
from pdlab.report.picture import Picture, interval_words, origin
from pdlab.report.style import (
    GREY,
    arm_lines,
    arm_style,
    as_png,
    in_order,
    legend_beside,
    plain_ticks,
    rtt_axis,
)
from pdlab.samples import Metric, Samples, median_of_blocks
from pdlab.stats import median_interval

RATIO = Metric("share_of_raw_tcp", "goodput over raw TCP's", "", True, lambda request: None)
LOG_FROM = 6.0  # the axis is logarithmic when the medians span more than this


def distance_pictures(
    record: Record, samples: Sequence[Samples], metric: Metric
) -> Iterator[Picture]:
    """None of a link at one RTT only."""
    groups: dict[Condition, list[Samples]] = defaultdict(list)
    for one in samples:
        if one.blocks:
            groups[replace(one.condition.at_any_distance, page_bytes=0)].append(one)
    far = [item for item in sorted(groups.items()) if _num_distances(item[1]) > 1]
    for number, (shared, group) in enumerate(far, start=1):
        title = f"{metric.title[0].upper()}{metric.title[1:]}, {shared.without_rtt}"
        yield Picture(
            name=f"{_file_word(metric)}-over-rtt-{number}",
            title=title,
            caption=_caption(record, group, metric),
            png=as_png(_figure(group, metric, title)),
        )


def _num_distances(group: Iterable[Samples]) -> int:
    return len({one.condition.rtt_s for one in group})


def over_raw_tcp(samples: Iterable[Samples]) -> list[Samples]:
    """Each value divided by that of raw TCP in the same block."""
    found = list(samples)
    raw = {one.condition: one.blocks for one in found if one.arm.name == "raw_tcp"}
    return [
        replace(one, blocks={i: one.blocks[i] / raw[one.condition][i] for i in blocks})
        for one in found
        if one.arm.name != "raw_tcp"
        if (blocks := _nonzero(raw.get(one.condition, {})) & one.blocks.keys())
    ]


def _nonzero(blocks: Mapping[int, float]) -> set[int]:
    return {i for i, value in blocks.items() if value > 0}


def _file_word(metric: Metric) -> str:
    return metric.name.removesuffix("_bps").removesuffix("_s").replace("_", "-")


def _caption(record: Record, group: Sequence[Samples], metric: Metric) -> str:
    better = "Higher" if metric.higher_is_better else "Lower"
    voids = sum(one.void is not None for one in group)
    void = f" Hollow: {voids} void cells, whose yardstick was too slow." if voids else ""
    wire = (
        " Dotted: the link's rate on the wire, which payload cannot reach: headers take their part."
        if _wire_bps(group, metric)
        else ""
    )
    links = [link for one in group for link in one.links]
    counts = [len(one.blocks) for one in group]
    return (
        f"Median {metric.title} against round-trip time. {better} is better. Whiskers:"
        f" {interval_words(counts)}.{void}{wire} {origin(record, links, counts)}"
    )


def _wire_bps(group: Sequence[Samples], metric: Metric) -> float:
    """0 where no line is drawn."""
    return group[0].condition.rate_bps if metric.unit == "bit/s" else 0.0


def _figure(group: Sequence[Samples], metric: Metric, title: str) -> Figure:
    pages = sorted({one.condition.page_bytes for one in group})
    arms = in_order(one.arm.name for one in group)
    unit, factor = axis_unit(metric)
    figure = Figure(figsize=(1.5 + 2.6 * max(len(pages), 1.6), 3.3))
    panels = figure.subplots(1, len(pages), sharey=True, squeeze=False)[0]
    for axes, page_bytes in zip(panels, pages, strict=True):
        _panel(axes, [one for one in group if one.condition.page_bytes == page_bytes], metric, arms)
        if page_bytes:
            axes.set_title(f"page {format_bytes(page_bytes)}")
    panels[0].set_ylabel(f"{metric.title} ({unit})" if unit else metric.title)
    _scale(panels[0], [factor * median_of_blocks(one) for one in group], metric)
    legend_beside(figure, arm_lines(arms), title)
    return figure


def _panel(axes: Axes, group: Sequence[Samples], metric: Metric, arms: Sequence[str]) -> None:
    """The heavy line lies below the thin ones, which often lie upon it."""
    rtt_axis(axes, [one.condition.rtt_s for one in group])
    for place, arm in enumerate(arms):
        of_arm = [one for one in group if one.arm.name == arm]
        if of_arm:
            _draw(axes, sorted(of_arm, key=lambda one: one.condition.rtt_s), metric, place)
    if wire_bps := _wire_bps(group, metric):
        _mark_rate(axes, wire_bps)


def _mark_rate(axes: Axes, rate_bps: float) -> None:
    axes.axhline(rate_bps / 1e9, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.annotate(
        f"{format_bits_per_s(rate_bps)} on the wire",
        (1, rate_bps / 1e9),
        (-2, 3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        color=GREY,
        fontsize=7,
    )


def _draw(axes: Axes, line: Sequence[Samples], metric: Metric, place: int) -> None:
    style, factor = arm_style(line[0].arm.name, place), axis_unit(metric)[1]
    x = [1e3 * one.condition.rtt_s for one in line]
    y = [factor * median_of_blocks(one) for one in line]
    depth = 3 - 0.5 * style.width
    axes.plot(x, y, style.line, color=style.colour, linewidth=style.width, zorder=depth)
    for x_i, y_i, one in zip(x, y, line, strict=True):
        interval = median_interval(list(one.blocks.values()))
        whisker = [factor * interval.low, factor * interval.high]
        axes.plot([x_i, x_i], whisker, color=style.colour, linewidth=0.9, zorder=depth)
        fill = "white" if one.void else style.colour
        axes.plot(
            x_i, y_i, style.marker, color=style.colour, mfc=fill, markersize=4.5, zorder=depth
        )


def axis_unit(metric: Metric) -> tuple[str, float]:
    """The unit on an axis, and what a value is multiplied by to be in it."""
    return ("Gbit/s", 1e-9) if metric.unit == "bit/s" else (metric.unit, 1.0)


def _scale(axes: Axes, values: Sequence[float], metric: Metric) -> None:
    positive = [value for value in values if value > 0]
    spread = bool(positive) and max(positive) > LOG_FROM * min(positive)
    if metric.unit == "bit/s" or (metric.unit and spread):
        axes.set_yscale("log")
        plain_ticks(axes.yaxis, values)
    else:
        axes.set_ylim(bottom=0)
