"""The bars that transfers are held to, one row each.

Ratios are of medians. ``raw_tcp`` is the better of one and four connections unless a bar says one.
The bars of serving, and that of the verdicts, are judged from records of their own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from kvtransfer.path_model import Path, sequential_bytes_per_s, streamed_s
from pdlab.records import Cell
from pdlab.transfer.arms import NIXL, RAW_TCP
from pdlab.transfer.cases import ALONE, BEHIND, CUT, FIRST, RATE_DROP, RTT_RISE, TENTH
from pdlab.transfer.judging import Bar, Figure, Where, goodput_over, place_of, rival_of
from pdlab.transfer.sizing import LINE_SHARE

KIB, MIB, GBIT = 2**10, 2**20, 1e9
SPARE_RSS_BYTES = 64 * MIB
WINDOW_OF_BDP = 2.0
ROUND_TRIPS_BEHIND = 4
RATES = (GBIT, 5 * GBIT)

Figures = Callable[[Sequence[Cell]], Iterable[Figure]]


def over(where: Where, rival: str, *, stripes: int | None = None) -> Figures:
    """Goodput over another arm's in the same place, wherever that was measured too."""

    def figures(cells: Sequence[Cell]) -> Iterator[Figure]:
        for cell in where.of(cells):
            other = rival_of(cell, cells, rival, stripes=stripes)
            if other is not None:
                yield Figure(place_of(cell), goodput_over(cell, other))

    return figures


def each(where: Where, value: Callable[[Cell], float | None]) -> Figures:
    """A figure that a cell has by itself."""

    def figures(cells: Sequence[Cell]) -> Iterator[Figure]:
        for cell in where.of(cells):
            yield Figure(place_of(cell), value(cell) if cell.goodput_bps else None)

    return figures


def between_cases(where: Where, case: str, value: Callable[[Cell, Cell], float]) -> Figures:
    """A figure of a cell and of another case of it."""

    def figures(cells: Sequence[Cell]) -> Iterator[Figure]:
        for cell in where.of(cells):
            other = rival_of(cell, cells, cell.arm, case=case)
            if other is not None:
                has_both = cell.goodput_bps and other.goodput_bps
                yield Figure(place_of(cell), value(cell, other) if has_both else None)

    return figures


def of_the_bound(cell: Cell) -> float:
    """Against payload / (payload / line + RTT)."""
    assert cell.rate_bps is not None, "a bound needs a line"
    payload_bytes = cell.payload_bytes // cell.page_bytes * cell.page_bytes
    path = Path(cell.rtt_s, LINE_SHARE * cell.rate_bps / 8)
    return cell.median_goodput_bps * streamed_s(path, payload_bytes) / (8 * payload_bytes)


def of_the_rate(cell: Cell) -> float:
    assert cell.rate_bps is not None, "a share needs a rate"
    return cell.median_goodput_bps / cell.rate_bps


def cpu_over_raw_grpc(cells: Sequence[Cell]) -> Iterator[Figure]:
    for cell in Where("auto").of(cells):
        other = rival_of(cell, cells, "raw_grpc")
        if other is not None:
            mine, bare = cell.cpu_s_per_gb, other.cpu_s_per_gb
            yield Figure(place_of(cell), mine / bare if mine and bare else None)


def away_from_the_model(arm: str) -> Figures:
    """|measured / (S/(R + S/B + o)) - 1|; o is what a frame took at R = 0, S/B taken off."""

    def figures(cells: Sequence[Cell]) -> Iterator[Figure]:
        for cell in Where(arm, rate_bps=GBIT, least_rtt_s=1e-6).of(cells):
            near = Where(arm, rate_bps=GBIT, most_rtt_s=0.0).of(cells)
            same = [c for c in near if c.page_bytes == cell.page_bytes and c.goodput_bps]
            if same and cell.frame_bytes:
                yield Figure(place_of(cell), _away(cell, same[0]) if cell.goodput_bps else None)

    return figures


def _away(cell: Cell, near: Cell) -> float:
    assert cell.frame_bytes and cell.rate_bps, "a sequential arm has frames, and the link a rate"
    line = LINE_SHARE * cell.rate_bps / 8
    frame_cost_s = 8 * cell.frame_bytes / near.median_goodput_bps - cell.frame_bytes / line
    path = Path(cell.rtt_s, line, max(0.0, frame_cost_s))
    expected_bps = 8 * sequential_bytes_per_s(path, cell.frame_bytes)
    return abs(cell.median_goodput_bps / expected_bps - 1)


def rss_over_its_bound(cells: Sequence[Cell]) -> Iterator[Figure]:
    """Both ends' growth over twice the window in force plus what is spare."""
    for cell in cells:
        if cell.arm == "auto" and cell.rss_growth_bytes and cell.window_bytes and not cell.case:
            bound = 2 * cell.window_bytes + SPARE_RSS_BYTES
            yield Figure(place_of(cell), cell.rss_growth_bytes / bound)


def times_as_long(cell: Cell, other: Cell) -> float:
    return other.median_goodput_bps / cell.median_goodput_bps


def of_its_allowance(behind: Cell, alone: Cell) -> float:
    """Its time over four round trips and its own time."""
    own_s = 8 * alone.payload_bytes / alone.median_goodput_bps
    took_s = 8 * behind.payload_bytes / behind.median_goodput_bps
    return took_s / (ROUND_TRIPS_BEHIND * behind.rtt_s + own_s)


def off_the_window(cell: Cell) -> float | None:
    """|target / (2 BDP) - 1| of the new profile."""
    if cell.window_bytes is None or cell.rate_bps is None:
        return None
    bdp_bytes = cell.rtt_s * LINE_SHARE * cell.rate_bps / 8
    return abs(cell.window_bytes / (WINDOW_OF_BDP * bdp_bytes) - 1)


def arrived(cell: Cell) -> float:
    return float(cell.verified)


def all_verified(cells: Sequence[Cell]) -> Iterator[Figure]:
    for cell in cells:
        yield Figure(f"{cell.arm}, {place_of(cell)}", float(cell.verified))


def _auto(payload_mib: int, rate: float, least_ms: float, most_ms: float) -> Where:
    return Where("auto", payload_mib * MIB, rate, least_ms / 1000, most_ms / 1000)


_STOCK = Where("auto", 256 * MIB, GBIT, 0.1, 0.1, buffers="stock")
_LARGE_50 = Where("auto", 256 * MIB, GBIT, 0.05, 0.05)
_LOOPBACK = Where("auto")

BARS: tuple[Bar, ...] = (
    Bar(
        "`auto` / `raw_tcp`, 256 MiB, 1 Gbit/s, 0 to 200 ms",
        0.97,
        True,
        over(_auto(256, GBIT, 0, 200), RAW_TCP),
    ),
    Bar(
        "`auto` / `raw_tcp`, 256 MiB, 5 Gbit/s, 10 to 100 ms",
        0.93,
        True,
        over(_auto(256, 5 * GBIT, 10, 100), RAW_TCP),
    ),
    Bar(
        "`auto` / `raw_tcp`, 256 MiB, 5 Gbit/s, 0 ms",
        0.85,
        True,
        over(_auto(256, 5 * GBIT, 0, 0), RAW_TCP),
    ),
    Bar(
        "`auto` / `raw_tcp`, 32 MiB, 1 Gbit/s, 0 to 100 ms",
        0.95,
        True,
        over(_auto(32, GBIT, 0, 100), RAW_TCP),
    ),
    Bar(
        "`auto` / (payload / (payload / line + RTT)), 32 MiB, 1 Gbit/s, 0 to 50 ms",
        0.90,
        True,
        each(_auto(32, GBIT, 0, 50), of_the_bound),
    ),
    Bar(
        "stock TCP buffers, 256 MiB, 100 ms: `auto` / the set rate of 1 Gbit/s",
        0.80,
        True,
        each(_STOCK, of_the_rate),
    ),
    Bar(
        "stock TCP buffers, 256 MiB, 100 ms: `auto` / one raw connection",
        3.0,
        True,
        over(_STOCK, RAW_TCP, stripes=1),
    ),
    Bar("`auto` / NIXL over UCX/TCP, large buffers, 50 ms", 0.95, True, over(_LARGE_50, NIXL)),
    Bar("`auto` / NIXL over UCX/TCP, stock buffers, 100 ms", 3.0, True, over(_STOCK, NIXL)),
    Bar("`auto` / `raw_grpc`, loopback, 256 MiB: rate", 0.9, True, over(_LOOPBACK, "raw_grpc")),
    Bar("`auto` / `raw_grpc`, loopback, 256 MiB: CPU", 1.15, False, cpu_over_raw_grpc),
    Bar(
        "first transfer of a pair known for 5 s, over the tenth's time, 64 MiB, 50 ms",
        1.3,
        False,
        between_cases(Where("auto", case=FIRST), TENTH, times_as_long),
    ),
    Bar("`sequential` away from S/(R + S/B + o)", 0.15, False, away_from_the_model("sequential")),
    Bar(
        "`sequential_layer` away from S/(R + S/B + o)",
        0.15,
        False,
        away_from_the_model("sequential_layer"),
    ),
    Bar(
        "0.1 % loss, 50 ms, bbr: `auto` / `raw_tcp`",
        0.95,
        True,
        over(Where("auto", congestion="bbr", loss=0.001), RAW_TCP),
    ),
    Bar(
        "0.01 % loss, 50 ms, cubic: `auto` / one raw connection",
        4.0,
        True,
        over(Where("auto", congestion="cubic", loss=0.0001), RAW_TCP, stripes=1),
    ),
    Bar(
        "1 MiB behind 256 MiB, 50 ms: time / (4 RTT + its own time)",
        1.0,
        False,
        between_cases(Where("auto", case=BEHIND), ALONE, of_its_allowance),
    ),
    Bar("resident memory of both ends over (2 windows + 64 MiB)", 1.0, False, rss_over_its_bound),
    Bar(
        "rate / 10 in mid-transfer: window's target away from 2 BDP after 5 round trips",
        0.25,
        False,
        each(Where("auto", case=RATE_DROP), off_the_window),
    ),
    Bar(
        "RTT x 4 in mid-transfer: window's target away from 2 BDP after 5 round trips",
        0.25,
        False,
        each(Where("auto", case=RTT_RISE), off_the_window),
    ),
    Bar(
        "a 2 s cut in mid-transfer: all pages arrived",
        1.0,
        True,
        each(Where("auto", case=CUT), arrived),
    ),
    Bar("every page of every repetition arrived as it was sent", 1.0, True, all_verified),
)
