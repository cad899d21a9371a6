"""The state tables of docs/wire-protocol.md as data: the tests walk what the page says."""

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "wire-protocol.md"


@dataclass(frozen=True)
class Cell:
    """What ``event`` does in ``state``. ``next_state`` is ``state`` where the page names none."""

    event: str
    state: str
    outcome: str
    next_state: str


def cells(table: str) -> list[Cell]:
    """The cells that can be of the table after ``<!-- table: NAME -->``."""
    lines = PAGE.read_text().split(f"<!-- table: {table} -->\n")[1].splitlines()
    rows = [_columns(line) for line in lines[: lines.index("")]]
    states = rows[0][1:]
    return [
        _cell(row[0], state, text)
        for row in rows[2:]
        for state, text in zip(states, row[1:], strict=True)
        if text != "-"
    ]


def _columns(line: str) -> list[str]:
    return [column.strip() for column in line.strip().strip("|").split("|")]


def _cell(event: str, state: str, text: str) -> Cell:
    outcome, _, next_state = text.partition(" → ")
    return Cell(event.replace("`", ""), state, outcome, next_state or state)
