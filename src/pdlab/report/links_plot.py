"""The same arms on loopback and on a long path: what a test on one host shows, what it hides."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pdlab.conditions import Condition, rate_words
from pdlab.quantities import format_bytes, format_seconds
from pdlab.records import Record
from pdlab.report.distance_plot import axis_unit
from pdlab.report.picture import Picture, interval_words, origin
from pdlab.report.style import as_png, in_order, legend_above, plain_ticks
from pdlab.samples import Metric, Samples, median_of_blocks
from pdlab.stats import median_interval

LOOKS = (("#8c8c8c", "o"), ("#0072B2", "s"), ("#E69F00", "^"), ("#009E73", "D"), ("#D55E00", "v"))


def links_pictures(record: Record, samples: Sequence[Samples], metric: Metric) -> Iterator[Picture]:
    """Of records with links of more than one kind."""
    groups: dict[tuple[int, int, int], list[Samples]] = defaultdict(list)
    for one in samples:
        if one.blocks:
            work = one.condition
            groups[work.page_bytes, work.payload_bytes, work.concurrency].append(one)
    several = [item for item in sorted(groups.items()) if _num_kinds(item[1]) > 1]
    for number, ((page_bytes, payload_bytes, _), group) in enumerate(several, start=1):
        page = f", page {format_bytes(page_bytes)}" if page_bytes else ""
        payload = f", {format_bytes(payload_bytes)}" if payload_bytes else ""
        title = f"The same arms on different links{page}{payload}"
        counts = [len(one.blocks) for one in group]
        links = [link for one in group for link in one.links]
        yield Picture(
            name=f"links-{number}",
            title=title,
            caption=f"Median {metric.title} of each arm on each link; whiskers:"
            f" {interval_words(counts)}. {origin(record, links, counts)}",
            png=as_png(_figure(group, metric, title)),
        )


def _num_kinds(group: Sequence[Samples]) -> int:
    return len({one.condition.kind for one in group})


def _figure(group: Sequence[Samples], metric: Metric, title: str) -> Figure:
    """A dot per link in each arm's column: how far the dots are apart is what the path costs."""
    arms = in_order(one.arm.name for one in group)
    links = sorted({_link_of(one) for one in group})
    unit, factor = axis_unit(metric)
    figure = Figure(figsize=(1.2 + 0.95 * max(len(arms), 4), 3.2))
    axes = figure.subplots()
    for x, arm in enumerate(arms):
        values = [factor * median_of_blocks(one) for one in group if one.arm.name == arm]
        axes.plot([x, x], [min(values), max(values)], color="#d9d9d9", linewidth=3, zorder=1)
    for one in group:
        x, (colour, marker) = arms.index(one.arm.name), LOOKS[links.index(_link_of(one)) % 5]
        interval = median_interval(list(one.blocks.values()))
        whisker = [factor * interval.low, factor * interval.high]
        axes.plot([x, x], whisker, color=colour, linewidth=1)
        axes.plot(x, factor * median_of_blocks(one), marker, color=colour, markersize=6)
    axes.set_yscale("log")
    plain_ticks(axes.yaxis, [factor * median_of_blocks(one) for one in group])
    axes.set_ylabel(f"{metric.title} ({unit})")
    axes.set_xticks(range(len(arms)), arms)
    axes.set_xlim(-0.5, len(arms) - 0.5)
    axes.grid(visible=False, axis="x")
    legend_above(figure, [_entry(link, *LOOKS[i % 5]) for i, link in enumerate(links)], title)
    return figure


def _link_of(samples: Samples) -> Condition:
    return replace(samples.condition, page_bytes=0, payload_bytes=0)


def _entry(link: Condition, colour: str, marker: str) -> Line2D:
    label = f"{link.kind}, {format_seconds(link.rtt_s)}, {rate_words(link.rate_bps)}"
    return Line2D([], [], color=colour, marker=marker, linestyle="none", label=label)
