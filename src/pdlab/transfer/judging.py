"""What a bar is, and whether a record meets it.

A bar has one figure for every place where it was measured: a link, a page size, a payload. It is
met when every figure meets it. Void cells count for nothing; a place where something failed has no
figure, and the bar is then not met there.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pdlab.quantities import format_bits_per_s, format_bytes, format_seconds
from pdlab.records import Cell

UNLIMITED_S = float("inf")


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured in one place; None: nothing could be."""

    place: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Bar:
    """``figures`` finds them among the cells that count."""

    what: str
    limit: float
    at_least: bool  # else at most
    figures: Callable[[Sequence[Cell]], Iterable[Figure]]

    @property
    def bound(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"

    def is_met_by(self, figure: Figure) -> bool:
        if figure.value is None:
            return False
        return figure.value >= self.limit if self.at_least else figure.value <= self.limit


@dataclass(frozen=True, slots=True)
class Judged:
    bar: Bar
    figures: tuple[Figure, ...]

    @property
    def is_met(self) -> bool | None:
        """None: it was not measured, or every place was void."""
        return all(map(self.bar.is_met_by, self.figures)) if self.figures else None

    @property
    def worst(self) -> Figure | None:
        for figure in self.figures:
            if figure.value is None:
                return figure
        choose = min if self.bar.at_least else max
        return choose(self.figures, key=lambda figure: figure.value or 0.0, default=None)


def judge(bars: Iterable[Bar], cells: Iterable[Cell]) -> list[Judged]:
    counting = [cell for cell in cells if cell.void is None]
    return [Judged(bar, tuple(bar.figures(counting))) for bar in bars]


@dataclass(frozen=True, slots=True)
class Where:
    """Which cells a bar is about; None: any."""

    arm: str
    payload_bytes: int | None = None
    rate_bps: float | None = None
    least_rtt_s: float = 0.0
    most_rtt_s: float = UNLIMITED_S
    buffers: str = "large"
    congestion: str | None = None
    loss: float = 0.0
    case: str = ""

    def of(self, cells: Iterable[Cell]) -> Iterator[Cell]:
        return filter(self._holds, cells)

    def _holds(self, cell: Cell) -> bool:
        return (
            cell.arm == self.arm
            and self.payload_bytes in (None, cell.payload_bytes)
            and self.rate_bps in (None, cell.rate_bps)
            and self.least_rtt_s <= cell.rtt_s <= self.most_rtt_s
            and self.congestion in (None, cell.congestion)
            and (cell.buffers, cell.loss, cell.case) == (self.buffers, self.loss, self.case)
        )


def place_of(cell: Cell) -> str:
    rate = "loopback" if cell.rate_bps is None else format_bits_per_s(cell.rate_bps)
    sizes = f"{format_bytes(cell.payload_bytes)} in {format_bytes(cell.page_bytes)} pages"
    return f"{rate}, {format_seconds(cell.rtt_s)}, {sizes}"


def rival_of(
    cell: Cell, cells: Iterable[Cell], arm: str, *, stripes: int | None = None, case: str = ""
) -> Cell | None:
    """The cell of another arm, or of another case, on the same link with the same sizes.

    Of several, which differ in their connections, the fastest.
    """
    rivals = [
        other
        for other in cells
        if other.arm == arm
        and (other.link, other.page_bytes, other.payload_bytes)
        == (cell.link, cell.page_bytes, cell.payload_bytes)
        and other.case == case
        and stripes in (None, other.stripes)
    ]
    return max(rivals, key=lambda other: other.median_goodput_bps, default=None)


def goodput_over(cell: Cell, rival: Cell) -> float | None:
    """None when one of the two moved nothing."""
    if not cell.goodput_bps or not rival.goodput_bps:
        return None
    return cell.median_goodput_bps / rival.median_goodput_bps
