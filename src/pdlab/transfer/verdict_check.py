"""Does a verdict name what really gains most? Each cell of a grid against the same cell without R,
without a limit to B, and without o.

R and B are removed by measuring: the grid has the cell at 0 ms, and at no set rate. Software cannot
be removed, so o is measured where both others are removed, as what is left per frame there; its
gain is then the model's, with R and B as set. Two gains within ``CLOSE`` of each other are both
right. A cell that lacks a partner is not judged.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kvtransfer.limits import MODES
from kvtransfer.path_model import Path, Shape, Step, modelled_s
from pdlab.records import Cell
from pdlab.transfer.judging import Figure, place_of
from pdlab.transfer.sizing import LINE_SHARE, waits_for_each_frame

CLOSE = 1.5
SOFTWARE, RTT, BANDWIDTH = "software_bound", "rtt_bound", "bandwidth_bound"


@dataclass(frozen=True, slots=True)
class Checked:
    """``gains_s``: by how much each removal shortens the transfer."""

    cell: Cell
    gains_s: dict[str, float]

    @property
    def agrees(self) -> bool:
        own = self.gains_s.get(self.cell.verdict or "", 0.0)
        return own * CLOSE >= max(self.gains_s.values())

    def __str__(self) -> str:
        gains = ", ".join(f"{name} {1e3 * gain:.1f} ms" for name, gain in self.gains_s.items())
        return f"{self.cell.arm}, {place_of(self.cell)}: {self.cell.verdict}; gains: {gains}"


def check_verdicts(cells: Sequence[Cell]) -> list[Checked]:
    return [checked for cell in cells if (checked := _checked(cell, cells)) is not None]


def share_right(cells: Sequence[Cell]) -> Iterator[Figure]:
    """For a bar: one figure for the whole grid, none where there is no grid."""
    checked = check_verdicts(cells)
    if checked:
        right = sum(one.agrees for one in checked) / len(checked)
        yield Figure(f"{len(checked)} cells of the grid", right)


def _checked(cell: Cell, cells: Iterable[Cell]) -> Checked | None:
    if cell.arm not in MODES or cell.rate_bps is None or not cell.goodput_bps or cell.case:
        return None
    same = [c for c in cells if _alike(c, cell) and c.goodput_bps]
    near = [c for c in same if c.rtt_s == 0 and c.rate_bps == cell.rate_bps]
    unlimited = [c for c in same if c.rate_bps is None and c.rtt_s == cell.rtt_s]
    neither = [c for c in same if c.rate_bps is None and c.rtt_s == 0]
    if not (near and unlimited and neither) or not cell.frame_bytes:
        return None
    took_s = _seconds_for(_moved_bytes(cell), cell)
    return Checked(
        cell,
        {
            RTT: took_s - _seconds_for(_moved_bytes(cell), near[0]),
            BANDWIDTH: took_s - _seconds_for(_moved_bytes(cell), unlimited[0]),
            SOFTWARE: _software_gain_s(cell, neither[0]),
        },
    )


def _alike(cell: Cell, other: Cell) -> bool:
    def place(c: Cell) -> tuple[object, ...]:
        return c.arm, c.page_bytes, c.payload_bytes, c.buffers, c.congestion, c.loss, c.case

    return place(cell) == place(other)


def _moved_bytes(cell: Cell) -> int:
    whole = cell.payload_bytes // cell.page_bytes * cell.page_bytes
    return cell.moved_bytes[0] if cell.moved_bytes else whole


def _seconds_for(num_bytes: int, cell: Cell) -> float:
    """What the cell would have taken for so many bytes. A stream pays its round trip once."""
    moved = _moved_bytes(cell)
    took_s = 8 * moved / cell.median_goodput_bps
    once_s = 0.0 if waits_for_each_frame(cell.arm) else min(cell.rtt_s, took_s)
    return once_s + (took_s - once_s) * num_bytes / moved


def _software_gain_s(cell: Cell, neither: Cell) -> float:
    assert cell.frame_bytes and cell.rate_bps, "only such cells are judged"
    frame_cost_s = 8 * cell.frame_bytes / neither.median_goodput_bps
    shape = Shape((Step(0.0, _moved_bytes(cell)),), cell.frame_bytes, cell.window_bytes or 0)
    free = Path(cell.rtt_s, LINE_SHARE * cell.rate_bps / 8)
    costly = replace(free, frame_cost_s=frame_cost_s)
    return modelled_s(shape, costly) - modelled_s(shape, free)
