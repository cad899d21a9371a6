"""``adaptive``: of the fixed schedules, the one that a cost model of this machine finds quickest.

The model knows what ``Costs`` says, measured once (``calibration``). Workers that run out of work
leave memory to the others, who then read faster: the less so, the nearer a single one comes to what
all read together.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from pdengine.attention.schedules import CHOICES, Piece, Schedule, View, Work


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one layer, in seconds: a token of a worker's piece while all workers read (``token_s``)
    and while no other does (``alone_token_s``), a piece beside its tokens, a part that is merged,
    and the waiting for each other before that."""

    token_s: float
    alone_token_s: float
    piece_s: float
    part_s: float
    barrier_s: float


class Adaptive:
    """A ``Schedule``. Work of equal cost goes to the one named first."""

    def __init__(self, costs: Costs, schedules: Mapping[str, Schedule] = CHOICES) -> None:
        self._costs = costs
        self._schedules = schedules

    def __call__(self, view: View) -> Work:
        works = [schedule(view) for schedule in self._schedules.values()]
        return min(works, key=lambda work: modelled_s(work, self._costs, view.num_workers))


def modelled_s(work: Work, costs: Costs, num_workers: int) -> float:
    """Of one layer."""
    shares = (
        _in_turns(work.pieces, costs, num_workers)
        if work.takes_turns
        else _in_order(work.pieces, num_workers)
    )
    num_parts = _num_parts(work.pieces)
    merging_s = costs.barrier_s + num_parts * costs.part_s / num_workers if num_parts else 0.0
    return _reading_s(shares, costs) + merging_s


@dataclass(slots=True)
class _Share:
    """What one worker does."""

    num_tokens: int = 0
    num_pieces: int = 0

    def add(self, piece: Piece) -> None:
        self.num_tokens += piece.last - piece.first
        self.num_pieces += 1


def _in_order(pieces: Sequence[Piece], num_workers: int) -> list[_Share]:
    """As the kernel divides them: equal numbers of pieces."""
    shares = [_Share() for _ in range(num_workers)]
    for worker, share in enumerate(shares):
        first, last = (len(pieces) * (worker + i) // num_workers for i in (0, 1))
        for piece in pieces[first:last]:
            share.add(piece)
    return shares


def _in_turns(pieces: Sequence[Piece], costs: Costs, num_workers: int) -> list[_Share]:
    """Who is free first takes the next."""
    shares = [_Share() for _ in range(num_workers)]
    free = [(0.0, worker) for worker in range(num_workers)]
    for piece in pieces:
        at_s, worker = free[0]
        shares[worker].add(piece)
        took_s = costs.piece_s + (piece.last - piece.first) * costs.token_s
        heapq.heapreplace(free, (at_s + took_s, worker))
    return shares


def _reading_s(shares: Sequence[_Share], costs: Costs) -> float:
    """Until the last one is done: in phases, each with one reader fewer."""
    ordered = sorted(shares, key=lambda share: share.num_tokens)
    elapsed_s, done_tokens = 0.0, 0
    for index, share in enumerate(ordered):
        others = len(ordered) - 1 - index
        among = others / max(1, len(ordered) - 1)
        token_s = costs.alone_token_s + among * (costs.token_s - costs.alone_token_s)
        elapsed_s += (share.num_tokens - done_tokens) * token_s
        done_tokens = share.num_tokens
    return elapsed_s + costs.piece_s * max(share.num_pieces for share in shares)


def _num_parts(pieces: Sequence[Piece]) -> int:
    """Pieces of rows that were cut."""
    groups = groupby(pieces, key=lambda piece: piece.row.row)
    return sum(num for _, group in groups if (num := sum(1 for _ in group)) > 1)
