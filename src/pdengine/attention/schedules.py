"""How a decode step's attention is divided into work: one policy each, for any device.

A row is one query token with its context. ``per_row`` takes each row as one piece, divided evenly
in order; ``padded``, the baseline of coarse batches, divides as if all rows were as long as the
longest; ``split`` cuts long contexts into parts of nearly equal size, about two for each worker;
``workqueue`` cuts into smaller pieces, of which whoever is free takes the next.
Parts of one row are merged afterwards. Which of them suits a step, ``adaptive`` decides. All KV
heads of a token stay together: they are neighbours in memory, and read as fast as it goes only that
way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

LEAST_PART_TOKENS = 128  # below it a part costs more than it shares out
QUEUE_PART_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Row:
    """Query row ``row`` attends to tokens [first, last) of the context in page table ``table``."""

    row: int
    table: int
    first: int
    last: int

    @property
    def num_tokens(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class View:
    rows: Sequence[Row]
    num_workers: int

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)


@dataclass(frozen=True, slots=True)
class Piece:
    """Of ``row``: tokens [first, last), perhaps none."""

    row: Row
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Work:
    """``takes_turns``: a worker that is free takes the next piece; else each has an equal share of
    them, in order. Pieces of one row stand together."""

    pieces: Sequence[Piece]
    takes_turns: bool


Schedule = Callable[[View], Work]


def per_row(view: View) -> Work:
    return Work([whole(row) for row in view.rows], takes_turns=False)


def padded(view: View) -> Work:
    """A worker whose part of a row lies beyond its end has nothing to do, and takes no other."""
    longest = max(row.num_tokens for row in view.rows)
    starts = range(0, longest, QUEUE_PART_TOKENS)
    pieces = [
        Piece(row, *(min(row.last, row.first + start + end) for end in (0, QUEUE_PART_TOKENS)))
        for row in view.rows
        for start in starts
    ]
    return Work(pieces, takes_turns=False)


def split(view: View) -> Work:
    part = max(LEAST_PART_TOKENS, -(-view.num_tokens // (2 * view.num_workers)))
    pieces = [piece for row in view.rows for piece in cut(whole(row), part)]
    return Work(pieces, takes_turns=False)


def workqueue(view: View) -> Work:
    """The longest rows first, so that the last pieces to be taken are small."""
    rows = sorted(view.rows, key=lambda row: -row.num_tokens)
    fair = -(-view.num_tokens // (4 * view.num_workers))
    part = max(LEAST_PART_TOKENS, min(QUEUE_PART_TOKENS, fair))
    pieces = [piece for row in rows for piece in cut(whole(row), part)]
    return Work(pieces, takes_turns=True)


CHOICES: Mapping[str, Schedule] = {"per_row": per_row, "split": split, "workqueue": workqueue}
FIXED: Mapping[str, Schedule] = {**CHOICES, "padded": padded}
ADAPTIVE = "adaptive"
SCHEDULES = (*FIXED, ADAPTIVE)
DEFAULT_SCHEDULE = "workqueue"


def whole(row: Row) -> Piece:
    return Piece(row, row.first, row.last)


def cut(piece: Piece, part_tokens: int) -> list[Piece]:
    """Parts of nearly equal size, none above ``part_tokens``."""
    num_tokens = piece.last - piece.first
    num_parts = max(1, -(-num_tokens // part_tokens))
    ends = [piece.first + num_tokens * i // num_parts for i in range(num_parts + 1)]
    return [Piece(piece.row, first, last) for first, last in pairwise(ends)]
