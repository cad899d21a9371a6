"""Where the sender's time went: shares stacked to the whole, the whole in seconds beside each bar.

Bars are normalised, since a sequential transfer takes a hundred times as long as a streamed one,
and the question is what each waits for. Rows of panels are round-trip times, columns page sizes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pdlab.conditions import Condition, rtt_words
from pdlab.quantities import format_bytes, format_seconds
from pdlab.records import LinkRecord, Record, RequestRecord, ServingRecord, Shares
from pdlab.report.picture import Picture, origin
from pdlab.report.style import SHARE_COLOURS, as_png, in_order, legend_above
from pdlab.samples import best_cells, request_groups

NAMES = tuple(field.name for field in fields(Shares))


@dataclass(frozen=True, slots=True)
class Bar:
    arm: str
    condition: Condition
    seconds: Mapping[str, float]  # by the names of ``Shares``
    link: LinkRecord
    num_repetitions: int

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


def shares_pictures(record: Record) -> Iterator[Picture]:
    groups: dict[Condition, list[Bar]] = defaultdict(list)
    for bar in _bars(record):
        if bar.total_s > 0:
            groups[replace(bar.condition.at_any_distance, page_bytes=0, concurrency=1)].append(bar)
    for number, (shared, bars) in enumerate(sorted(groups.items()), start=1):
        yield Picture(
            name=f"time-shares-{number}",
            title=f"Where the sender's time went, {shared.without_rtt}",
            caption="Share of a transfer's duration in each of the sender's exclusive states; the"
            " duration stands beside the bar. "
            + origin(record, [bar.link for bar in bars], [bar.num_repetitions for bar in bars]),
            png=as_png(_figure(bars)),
        )


def _bars(record: Record) -> Iterator[Bar]:
    if isinstance(record, ServingRecord):
        yield from _serving_bars(record)
        return
    for (arm, condition), cell in best_cells(record).items():
        if cell.shares is not None:
            seconds = {name: getattr(cell.shares, name) for name in NAMES}
            yield Bar(arm, condition, seconds, record.link[cell.link], len(cell.goodput_bps))


def _serving_bars(record: ServingRecord) -> Iterator[Bar]:
    """Means over requests: unlike medians they add up to a duration."""
    for (arm, condition), requests in request_groups(record).items():
        shares = [found for request in requests if (found := _shares_of(request))]
        if shares:
            seconds = {name: sum(s[name] for s in shares) / len(shares) for name in NAMES}
            link = record.link[requests[0].link]
            yield Bar(arm, condition, seconds, link, len({r.repetition for r in requests}))


def _shares_of(request: RequestRecord) -> Mapping[str, float] | None:
    transfer = (request.timeline or {}).get("transfer") or {}
    shares: Mapping[str, float] | None = transfer.get("shares")
    return shares if shares and all(name in shares for name in NAMES) else None


def _figure(bars: Sequence[Bar]) -> Figure:
    loads = sorted({(bar.condition.rtt_s, bar.condition.concurrency) for bar in bars})
    pages = sorted({bar.condition.page_bytes for bar in bars})
    arms = in_order(bar.arm for bar in bars)[::-1]
    size = (1.6 + 2.6 * max(len(pages), 1.7), 0.7 + len(loads) * (0.35 + 0.2 * len(arms)))
    figure = Figure(figsize=size)
    panels = figure.subplots(len(loads), len(pages), sharex=True, sharey=True, squeeze=False)
    for row, (rtt_s, at_once) in zip(panels, loads, strict=True):
        for axes, page_bytes in zip(row, pages, strict=True):
            place = rtt_s, at_once, page_bytes
            _panel(axes, [bar for bar in bars if _place(bar.condition) == place], arms)
            axes.set_title(_title(*place))
    for axes in panels[-1]:
        axes.set_xlabel("share of the duration (%)")
    legend_above(figure, [Patch(color=c, label=label) for label, c in SHARE_COLOURS.values()])
    return figure


def _place(condition: Condition) -> tuple[float, int, int]:
    return condition.rtt_s, condition.concurrency, condition.page_bytes


def _title(rtt_s: float, at_once: int, page_bytes: int) -> str:
    page = f", page {format_bytes(page_bytes)}" if page_bytes else ""
    load = f", {at_once} at once" if at_once > 1 else ""
    return f"{rtt_words(rtt_s)} RTT{page}{load}"


def _panel(axes: Axes, bars: Iterable[Bar], arms: Sequence[str]) -> None:
    axes.set_yticks(range(len(arms)), arms)
    axes.set_ylim(-0.6, len(arms) - 0.4)
    axes.set_xlim(0, 100)
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    for bar in bars:
        y, left = arms.index(bar.arm), 0.0
        for name, (_, colour) in SHARE_COLOURS.items():
            width = 100 * bar.seconds[name] / bar.total_s
            axes.barh(y, width, left=left, height=0.72, color=colour, edgecolor="white", lw=0.4)
            left += width
        axes.annotate(format_seconds(bar.total_s), (100, y), (3, 0), textcoords="offset points",
                      va="center", fontsize=7, annotation_clip=False)  # fmt: skip
