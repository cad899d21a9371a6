"""A transfer record for the eye: one line a cell, and what is wrong with the record in words.

A payload that a time limit cut short is marked: goodput is of what was moved, and beside the other
arms of its row that is another payload.
"""

from rich.console import Console
from rich.table import Table

from pdlab.quantities import format_bits_per_s, format_bytes, format_seconds
from pdlab.records import Cell, TransferRecord

PLAIN_WIDTH = 150  # where standard output is no terminal

_COLUMNS = (
    "RTT",
    "rate",
    "payload",
    "page",
    "arm",
    "connections",
    "Gbit/s",
    "range",
    "of raw_tcp",
    "model",
    "CPU s/GB",
    "verdict",
)
_TEXT = ("arm", "verdict")
_CUT = "*"
_FOOTNOTE = f"{_CUT} cut short by its time limit: Gbit/s is of the pages that were moved"


def print_table(record: TransferRecord) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    table = Table(box=None)
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in _TEXT else "right")
    for cell in record.cells:
        table.add_row(*_row(cell))
    console.print(table)
    if any(cell.moved_bytes for cell in record.cells):
        console.print(_FOOTNOTE)


def least_moved_bytes(cell: Cell) -> int:
    """Of all repetitions; without a cut every whole page of the payload."""
    whole = cell.payload_bytes // cell.page_bytes * cell.page_bytes
    return min(cell.moved_bytes, default=whole)


def pages_of_cut(cell: Cell) -> str:
    """ "1 of 11 pages", of the repetition that moved fewest; empty where nothing was cut short."""
    if not cell.moved_bytes:
        return ""
    moved, whole = (n // cell.page_bytes for n in (least_moved_bytes(cell), cell.payload_bytes))
    return f"{moved} of {whole} pages"


def notes_of(cell: Cell) -> list[str]:
    """Its own, and whether its time limit cut it short."""
    cut = pages_of_cut(cell)
    return [*([f"cut short: {cut}"] if cut else []), *cell.notes]


def problems(record: TransferRecord) -> list[str]:
    """One line each; empty when the record can be believed."""
    found = [
        f"void: {_place(cell)}: {cell.void}"
        for cell in record.cells
        if cell.void and not _was_repeated(record, cell)
    ]
    for cell in record.cells:
        if not cell.verified:
            why = "; ".join(cell.notes) or "pages arrived with other bytes than were sent"
            found.append(f"{cell.arm} at {_place(cell)}: {why}")
    return list(dict.fromkeys(found))


def _was_repeated(record: TransferRecord, void: Cell) -> bool:
    """Whether the same arm was measured again, with a yardstick that was fast enough."""

    def place(cell: Cell) -> tuple[object, ...]:
        return cell.arm, cell.link, cell.case, cell.page_bytes, cell.payload_bytes

    return any(cell.void is None and place(cell) == place(void) for cell in record.cells)


def _row(cell: Cell) -> list[str]:
    return [
        format_seconds(cell.rtt_s),
        "any" if cell.rate_bps is None else format_bits_per_s(cell.rate_bps),
        format_bytes(cell.payload_bytes) + (_CUT if cell.moved_bytes else ""),
        format_bytes(cell.page_bytes),
        f"{cell.arm} ({cell.case})" if cell.case else cell.arm,
        str(cell.stripes),
        f"{cell.median_goodput_bps / 1e9:.3f}",
        _range(cell),
        _number(cell.ratio_to_raw_tcp),
        _number(None if cell.predicted_bps is None else cell.predicted_bps / 1e9),
        _number(cell.cpu_s_per_gb, digits=2),
        ", ".join(filter(None, _remarks(cell))),
    ]


def _remarks(cell: Cell) -> tuple[str | None, ...]:
    return cell.verdict, "void" if cell.void else "", pages_of_cut(cell), *cell.notes


def _range(cell: Cell) -> str:
    if not cell.goodput_bps:
        return ""
    return f"{min(cell.goodput_bps) / 1e9:.3f}-{max(cell.goodput_bps) / 1e9:.3f}"


def _number(value: float | None, *, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _place(cell: Cell) -> str:
    rate = "any rate" if cell.rate_bps is None else format_bits_per_s(cell.rate_bps)
    sizes = f"{format_bytes(cell.payload_bytes)} in {format_bytes(cell.page_bytes)} pages"
    return f"{format_seconds(cell.rtt_s)}, {rate}, {sizes}"
