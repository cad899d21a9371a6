"""The results page: what the bars ask, what was measured, and every cell, from the records alone.

A directory holds the records; the page says of each bar whether it is met, and where it is not.
What serving is held to is measured elsewhere (``pdlab.measured_bars``); its figures are included
when its file lies in the directory too.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pdcore.errors import ConfigError
from pdlab.quantities import format_bits_per_s, format_bytes, format_seconds
from pdlab.record_files import read_transfer, write_whole
from pdlab.records import Cell, LinkRecord, TransferRecord
from pdlab.transfer.bars import BARS
from pdlab.transfer.judging import Bar, Judged, judge
from pdlab.transfer.verdict_check import check_verdicts, share_right

PAGE, BARS_RECORD, GRID_RECORD = "transfer.md", "transfer.json", "transfer-grid.json"
SERVING_BARS = Path("serving", "bars.json")
VERDICT_BAR = Bar(
    "verdict: its impairment, removed, gains most (within 1.5x), cells of the whole grid",
    0.98,
    True,
    share_right,
)
LIMITS = "../experiments.md#what-limits-the-bars-that-are-not-met"
MAX_WRONG_SHOWN = 20


def write_page(directory: Path) -> list[Judged]:
    """The bars as judged; the page lies beside the records."""
    record = read_transfer(directory / BARS_RECORD)
    judged = judge(BARS, record.cells)
    grid = _grid(directory)
    if grid is not None:
        judged += judge([VERDICT_BAR], grid.cells)
    text = "\n".join(_lines(record, judged, grid, directory / SERVING_BARS)) + "\n"
    write_whole(directory / PAGE, text.encode())
    return judged


def update_page(serving: Path) -> None:
    """Bars of serving were measured into ``serving``: a page that shows them is written anew."""
    directory = serving.parent
    is_shown = serving.name == SERVING_BARS.parent.name and (directory / BARS_RECORD).exists()
    if is_shown:
        write_page(directory)


def _grid(directory: Path) -> TransferRecord | None:
    path = directory / GRID_RECORD
    return read_transfer(path) if path.exists() else None


def _lines(
    record: TransferRecord, judged: Sequence[Judged], grid: TransferRecord | None, serving: Path
) -> Iterator[str]:
    yield from _head(record)
    yield from _bars(judged)
    yield from _misses(judged)
    if grid is not None:
        yield from _wrong_verdicts(grid)
    yield from _serving(serving)
    yield from _voids(record.cells)
    yield from _links(record.link)
    yield from _cells(record)


def _head(record: TransferRecord) -> Iterator[str]:
    yield "# Transfers, measured"
    yield ""
    yield "Written by `make bench-transfer` from the records beside it; do not edit."
    yield ""
    yield f"- Host: {record.host}; load when it began: {record.host.load_1m}"
    yield f"- Versions: {', '.join(f'{k} {v}' for k, v in record.host.versions.items())}"
    yield f"- Commit: {record.commit}; begun {record.created}"
    yield f"- Raw records: [{BARS_RECORD}]({BARS_RECORD})"
    yield ""
    yield (
        "Both ends run on this machine, in two network namespaces joined by the emulated link, so"
        " they share its cores with it. Figures are medians over interleaved repetitions on"
        " connections that have carried the same bytes before."
    )


def _bars(judged: Iterable[Judged]) -> Iterator[str]:
    yield "\n## Bars\n"
    yield "| what | bar | measured (worst of all places) | places | |"
    yield "|---|---|---|---|---|"
    for one in judged:
        said = {True: "met", False: "**not met**", None: "not measured"}[one.is_met]
        num_met = sum(map(one.bar.is_met_by, one.figures))
        places = f"{num_met} of {len(one.figures)}" if one.figures else ""
        yield f"| {one.bar.what} | {one.bar.bound} | {_worst(one)} | {places} | {said} |"


def _worst(judged: Judged) -> str:
    worst = judged.worst
    if worst is None:
        return ""
    return "failed" if worst.value is None else f"{worst.value:.3f}"


def _misses(judged: Iterable[Judged]) -> Iterator[str]:
    misses = [
        f"- {one.bar.what}: {figure.place}: "
        + ("failed" if figure.value is None else f"{figure.value:.3f}")
        for one in judged
        for figure in one.figures
        if not one.bar.is_met_by(figure)
    ]
    if misses:
        yield "\n### Where a bar is not met\n"
        yield from misses
        yield f"\nWhat limits them: [experiments]({LIMITS})."


def _wrong_verdicts(grid: TransferRecord) -> Iterator[str]:
    wrong = [one for one in check_verdicts(grid.cells) if not one.agrees]
    yield f"\n### Verdicts that the whole grid disagrees with: {len(wrong)}\n"
    yield f"From [{GRID_RECORD}]({GRID_RECORD}), commit {grid.commit}."
    for one in wrong[:MAX_WRONG_SHOWN]:
        yield f"- {one}"


def _serving(path: Path) -> Iterator[str]:
    """As ``pdlab.measured_bars`` writes them."""
    if not path.exists():
        return
    try:
        measured = json.loads(path.read_text())
        commit, rows = measured["commit"], measured["bars"]
        lines = [
            f"| {row['what']} | {row['limit']:g} {row['unit']} | {row['value']:.3f}"
            f" ({row['low']:.3f} to {row['high']:.3f}) |"
            f" {'met' if row['passed'] else '**not met**'} |"
            for row in rows
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: not the bars of serving ({error})") from None
    yield "\n## Bars of serving\n"
    yield f"By `make bench-serving`, commit {commit}; records in [serving](serving).\n"
    yield "| what | at most | measured (interval of the median; the range, of fewer than 6) | |"
    yield "|---|---|---|---|"
    yield from lines


def _voids(cells: Iterable[Cell]) -> Iterator[str]:
    voids = dict.fromkeys(f"- {_where(cell)}: {cell.void}" for cell in cells if cell.void)
    if voids:
        yield "\n## Void: the yardstick itself was too slow\n"
        yield from voids


def _links(links: Iterable[LinkRecord]) -> Iterator[str]:
    yield "\n## Links, as set and as measured\n"
    yield "| kind | RTT | rate | loss | buffers | congestion | RTT measured | rate measured |"
    yield "|---|---|---|---|---|---|---|---|"
    for link in links:
        rtt = "" if link.rtt_min_s is None else format_seconds(link.rtt_min_s)
        rate = link.measured_rate_bps
        yield (
            f"| {link.kind} | {format_seconds(link.rtt_s)} | {_rate(link.rate_bps)} |"
            f" {link.loss:g} | {link.buffers} | {link.congestion} | {rtt} |"
            f" {'' if rate is None else format_bits_per_s(rate)} |"
        )


def _cells(record: TransferRecord) -> Iterator[str]:
    yield "\n## Cells\n"
    yield (
        "| where | arm | connections | Gbit/s, median (range) | of `raw_tcp` | model |"
        " CPU s/GB, sender + receiver | memory | verdict | |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for cell in record.cells:
        yield _row(cell)


def _row(cell: Cell) -> str:
    ratio = "" if cell.ratio_to_raw_tcp is None else f"{cell.ratio_to_raw_tcp:.3f}"
    predicted = "" if cell.predicted_bps is None else f"{cell.predicted_bps / 1e9:.3f}"
    cpu = [cell.sender_cpu_s_per_gb, cell.receiver_cpu_s_per_gb]
    cpus = " + ".join(f"{s:.2f}" for s in cpu if s is not None)
    memory = "" if cell.rss_growth_bytes is None else f"+{cell.rss_growth_bytes / 2**20:.0f} MiB"
    said = [cell.case, "void" if cell.void else "", *cell.notes]
    said += ["cut short by its time limit"] if cell.moved_bytes else []
    fields = (
        _where(cell),
        cell.arm,
        str(cell.stripes),
        goodput_text(cell),
        ratio,
        predicted,
        cpus,
        memory,
        cell.verdict or "",
        "; ".join(filter(None, said)),
    )
    return f"| {' | '.join(fields)} |"


def goodput_text(cell: Cell) -> str:
    if not cell.goodput_bps:
        return "none"
    low, high = min(cell.goodput_bps) / 1e9, max(cell.goodput_bps) / 1e9
    return f"{cell.median_goodput_bps / 1e9:.3f} ({low:.3f} to {high:.3f})"


def _where(cell: Cell) -> str:
    sizes = f"{format_bytes(cell.payload_bytes)}, {format_bytes(cell.page_bytes)} pages"
    loss = f", {100 * cell.loss:g} % loss" if cell.loss else ""
    stock = ", stock buffers" if cell.buffers != "large" else ""
    return f"{_rate(cell.rate_bps)}, {format_seconds(cell.rtt_s)}, {sizes}{loss}{stock}"


def _rate(rate_bps: float | None) -> str:
    return "any rate" if rate_bps is None else format_bits_per_s(rate_bps)
