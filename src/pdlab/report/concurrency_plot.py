"""Concurrency hides distance from a throughput number, not from the one who waits.

Aggregate KV rate against time to first token, a point for each number of requests at once: an arm
whose rate rises only while its latency does has bought the one with the other.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from matplotlib.figure import Figure

from pdlab.aggregate_rate import aggregate_bytes_per_s
from pdlab.conditions import Condition
from pdlab.records import RequestRecord, ServingRecord
from pdlab.report.picture import Picture, origin
from pdlab.report.style import arm_lines, arm_style, as_png, in_order, legend_beside, plain_ticks
from pdlab.samples import request_groups

Points = dict[str, dict[int, tuple[float, float]]]  # arm -> at once -> (bytes/s, TTFT)


def concurrency_pictures(record: ServingRecord) -> Iterator[Picture]:
    """None where each arm had but one number of requests at once."""
    groups: dict[Condition, Points] = defaultdict(lambda: defaultdict(dict))
    blocks: set[int] = set()
    for (arm, condition), requests in request_groups(record).items():
        blocks |= {request.repetition for request in requests}
        point = _point(requests)
        if point is not None:
            shared = replace(condition, concurrency=1)
            groups[shared][arm][condition.concurrency] = point
    several = [item for item in groups.items() if any(len(of) > 1 for of in item[1].values())]
    for number, (shared, points) in enumerate(sorted(several), start=1):
        title = f"Aggregate rate and latency, {shared}"
        yield Picture(
            name=f"concurrency-{number}",
            title=title,
            caption="Aggregate rate of KV pages against median time to first token; the numbers are"
            " requests at once. Right and below is better."
            f" {origin(record, record.link, [len(blocks)])}",
            png=as_png(_figure(points, title)),
        )


def _point(requests: Sequence[RequestRecord]) -> tuple[float, float] | None:
    rate = aggregate_bytes_per_s(requests)
    good = [request for request in requests if request.status == "ok"]
    ttfts_s = [request.ttft_s for request in good if request.ttft_s is not None]
    return (rate, median(ttfts_s)) if rate and ttfts_s else None


def _figure(points: Mapping[str, Mapping[int, tuple[float, float]]], title: str) -> Figure:
    arms = in_order(points)
    figure = Figure(figsize=(5.8, 3.6))
    axes = figure.subplots()
    for place, arm in enumerate(arms):
        style, path = arm_style(arm, place), sorted(points[arm].items())
        x = [rate / 1e6 for _, (rate, _) in path]
        y = [ttft_s for _, (_, ttft_s) in path]
        axes.plot(x, y, color=style.colour, linestyle=style.line, linewidth=style.width,
                  marker=style.marker, markersize=5)  # fmt: skip
        for at_once, x_i, y_i in zip((n for n, _ in path), x, y, strict=True):
            axes.annotate(str(at_once), (x_i, y_i), (6, -9), textcoords="offset points", fontsize=7)
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="aggregate rate of KV pages (MB/s)", ylabel="time to first token (s)")
    drawn = [point for of_arm in points.values() for point in of_arm.values()]
    plain_ticks(axes.xaxis, [rate / 1e6 for rate, _ in drawn])
    plain_ticks(axes.yaxis, [ttft_s for _, ttft_s in drawn])
    legend_beside(figure, arm_lines(arms), title)
    return figure
