"""Where the sender's time went: shares stacked to the whole, the whole in seconds beside each bar.

Bars are normalised, since a sequential transfer takes a hundred times as long as a streamed one,
and the question is what each waits for; the verdict, which shares alone do not give, stands there
too, and of how much the time is where a limit cut the payload short. Rows of panels are round-trip
times, columns page sizes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pdlab.conditions import Condition
from pdlab.quantities import format_bytes, format_seconds
from pdlab.records import LinkRecord, Record, RequestRecord, ServingRecord, Shares
from pdlab.report.picture import Picture, origin
from pdlab.report.style import SHARE_COLOURS, VERDICT_COLOURS, as_png, in_order, legend_above
from pdlab.samples import best_cells, request_groups
from pdlab.transfer.table import pages_of_cut

NAMES = tuple(field.name for field in fields(Shares))


@dataclass(frozen=True, slots=True)
class Bar:
    arm: str
    condition: Condition
    seconds: Mapping[str, float]  # by the names of ``Shares``
    link: LinkRecord
    num_repetitions: int
    verdict: str | None
    cut: str = ""  # "1 of 11 pages", where it was cut short

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def words(self) -> str:
        """What stands beside the bar."""
        verdict = VERDICT_COLOURS[self.verdict][0] if self.verdict in VERDICT_COLOURS else ""
        return ", ".join(filter(None, (format_seconds(self.total_s), verdict, self.cut)))


def shares_pictures(record: Record) -> Iterator[Picture]:
    groups: dict[Condition, list[Bar]] = defaultdict(list)
    for bar in _bars(record):
        if bar.total_s > 0:
            groups[replace(bar.condition.at_any_distance, page_bytes=0, concurrency=1)].append(bar)
    for number, (shared, bars) in enumerate(sorted(groups.items()), start=1):
        title = f"Where the sender's time went, {shared.without_rtt}"
        yield Picture(
            name=f"time-shares-{number}",
            title=title,
            caption=_caption(record, bars),
            png=as_png(_figure(bars, title)),
        )


def _caption(record: Record, bars: Sequence[Bar]) -> str:
    cut = (
        " Where a number of pages stands too, a time limit cut the payload short: that duration is"
        " of so many pages only, and not to be compared with the others'."
        if any(bar.cut for bar in bars)
        else ""
    )
    return (
        "Share of a transfer's duration in each of the sender's exclusive states; beside the bar"
        " the duration, and the verdict: the term whose removal would shorten the transfer most."
        " A share alone misleads: a full window on a full line also waits for acknowledgements."
        f"{cut} "
        + origin(record, [bar.link for bar in bars], [bar.num_repetitions for bar in bars])
    )


def _bars(record: Record) -> Iterator[Bar]:
    if isinstance(record, ServingRecord):
        yield from _serving_bars(record)
        return
    for (arm, condition), cell in best_cells(record).items():
        if cell.shares is not None:
            seconds = {name: getattr(cell.shares, name) for name in NAMES}
            yield Bar(
                arm,
                condition,
                seconds,
                record.link[cell.link],
                len(cell.goodput_bps),
                cell.verdict,
                pages_of_cut(cell),
            )


def _serving_bars(record: ServingRecord) -> Iterator[Bar]:
    """Means over requests: unlike medians they add up to a duration. The most frequent verdict."""
    for (arm, condition), requests in request_groups(record).items():
        shares = [found for request in requests if (found := _shares_of(request))]
        if shares:
            seconds = {name: sum(s[name] for s in shares) / len(shares) for name in NAMES}
            link = record.link[requests[0].link]
            num_repetitions = len({r.repetition for r in requests})
            yield Bar(arm, condition, seconds, link, num_repetitions, _verdict_of(requests))


def _transfer_of(request: RequestRecord) -> Mapping[str, Any]:
    return (request.timeline or {}).get("transfer") or {}


def _verdict_of(requests: Iterable[RequestRecord]) -> str | None:
    verdicts = Counter(_transfer_of(request).get("verdict") for request in requests)
    verdicts.pop(None, None)
    return verdicts.most_common(1)[0][0] if verdicts else None


def _shares_of(request: RequestRecord) -> Mapping[str, float] | None:
    shares: Mapping[str, float] | None = _transfer_of(request).get("shares")
    return shares if shares and all(name in shares for name in NAMES) else None


def _figure(bars: Sequence[Bar], title: str) -> Figure:
    loads = sorted({(bar.condition.rtt_s, bar.condition.concurrency) for bar in bars})
    pages = sorted({bar.condition.page_bytes for bar in bars})
    arms = in_order(bar.arm for bar in bars)[::-1]
    beside = 0.055 * max(len(bar.words) for bar in bars)  # inches
    size = (
        1.6 + (2.2 + beside) * max(len(pages), 1.7),
        0.9 + len(loads) * (0.35 + 0.2 * len(arms)),
    )
    figure = Figure(figsize=size)
    panels = figure.subplots(len(loads), len(pages), sharex=True, sharey=True, squeeze=False)
    for row, (rtt_s, at_once) in zip(panels, loads, strict=True):
        for axes, page_bytes in zip(row, pages, strict=True):
            place = rtt_s, at_once, page_bytes
            _panel(axes, [bar for bar in bars if _place(bar.condition) == place], arms)
            axes.set_title(_title(*place))
    for axes in panels[-1]:
        axes.set_xlabel("share of the duration (%)")
    legend_above(
        figure, [Patch(color=c, label=label) for label, c in SHARE_COLOURS.values()], title
    )
    return figure


def _place(condition: Condition) -> tuple[float, int, int]:
    return condition.rtt_s, condition.concurrency, condition.page_bytes


def _title(rtt_s: float, at_once: int, page_bytes: int) -> str:
    page = f", page {format_bytes(page_bytes)}" if page_bytes else ""
    load = f", {at_once} at once" if at_once > 1 else ""
    return f"{format_seconds(rtt_s)} RTT{page}{load}"


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
        axes.annotate(bar.words, (100, y), (3, 0), textcoords="offset points",
                      va="center", fontsize=7, annotation_clip=False)  # fmt: skip
