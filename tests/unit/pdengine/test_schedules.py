"""Every schedule covers every token of every row once, in pieces that can be merged."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdengine.attention.adaptive import Adaptive, Costs, modelled_s
from pdengine.attention.schedules import (
    CHOICES,
    FIXED,
    LEAST_PART_TOKENS,
    Row,
    View,
    Work,
    padded,
    per_row,
    split,
    whole,
)

lengths = st.lists(st.integers(1, 5000), min_size=1, max_size=40)


def view_of(lengths: list[int], num_workers: int = 2) -> View:
    rows = [Row(i, i, first=i, last=i + length) for i, length in enumerate(lengths)]
    return View(rows, num_workers)


@pytest.mark.parametrize("name", FIXED)
@given(lengths=lengths, num_workers=st.integers(1, 16))
def test_everything_once(name: str, lengths: list[int], num_workers: int) -> None:
    view = view_of(lengths, num_workers)
    ends = {row: row.first for row in view.rows}
    for piece in FIXED[name](view).pieces:
        assert piece.first == ends[piece.row]
        assert piece.first < piece.last or (name == "padded" and piece.first == piece.last)
        ends[piece.row] = piece.last
    assert ends == {row: row.last for row in view.rows}


@pytest.mark.parametrize("name", FIXED)
@given(lengths=lengths)
def test_pieces_of_a_row_stand_together(name: str, lengths: list[int]) -> None:
    pieces = FIXED[name](view_of(lengths)).pieces
    groups = [row for row, _ in groupby(pieces, lambda piece: piece.row.row)]
    assert len(groups) == len(set(groups))


def test_a_row_is_one_piece_or_cut_into_equal_parts() -> None:
    view = view_of([4000, 10])
    assert [piece.last - piece.first for piece in per_row(view).pieces] == [4000, 10]
    parts = [piece.last - piece.first for piece in split(view).pieces]
    assert parts == [1000, 1000, 1000, 1000, 10]


def test_padded_gives_every_row_as_many_parts_as_the_longest() -> None:
    parts = padded(view_of([1500, 600, 10])).pieces
    assert [piece.last - piece.first for piece in parts] == [512, 512, 476, 512, 88, 0, 10, 0, 0]


def test_short_rows_are_not_cut() -> None:
    view = view_of([LEAST_PART_TOKENS] * 8, num_workers=16)
    assert all(len(FIXED[name](view).pieces) == 8 for name in FIXED)


COSTS = Costs(token_s=1e-6, alone_token_s=0.6e-6, piece_s=1e-6, part_s=1e-6, barrier_s=5e-6)


def test_adaptive_leaves_one_row_whole_for_one_worker_and_cuts_it_for_two() -> None:
    adaptive = Adaptive(COSTS)
    assert len(adaptive(view_of([4000], num_workers=1)).pieces) == 1
    assert len(adaptive(view_of([4000], num_workers=2)).pieces) > 1


def test_adaptive_does_not_cut_what_is_not_worth_a_merge() -> None:
    costly = Costs(1e-6, 0.5e-6, 1e-6, part_s=1e-3, barrier_s=1e-3)
    view = view_of([4000, 3900, 100, 50], num_workers=2)
    assert len(Adaptive(costly)(view).pieces) == 4


@given(lengths=lengths, num_workers=st.integers(1, 8))
def test_adaptive_is_the_best_of_the_fixed_ones_by_its_own_model(
    lengths: list[int], num_workers: int
) -> None:
    view = view_of(lengths, num_workers=num_workers)
    best_s = min(modelled_s(fixed(view), COSTS, num_workers) for fixed in CHOICES.values())
    assert modelled_s(Adaptive(COSTS)(view), COSTS, num_workers) == best_s


def test_a_worker_alone_reads_faster() -> None:
    """Two workers, 1000 and 3000 tokens: both read for 1000, then one alone for 2000."""
    view = view_of([1000, 3000], num_workers=2)
    expected_s = 1000 * 1e-6 + 2000 * 0.6e-6 + 1e-6
    assert modelled_s(per_row(view), COSTS, 2) == pytest.approx(expected_s)


def test_who_is_free_first_takes_the_next() -> None:
    """One worker has the longest, the other all the rest; by order it would be three for each."""
    view = view_of([100, 600, 100, 100, 100, 100])
    costs = Costs(token_s=1e-6, alone_token_s=1e-6, piece_s=0.0, part_s=0.0, barrier_s=0.0)
    work = Work(sorted(map(whole, view.rows), key=lambda p: p.first - p.last), takes_turns=True)
    assert modelled_s(work, costs, 2) == pytest.approx(600e-6)
    in_order = Work(work.pieces, takes_turns=False)
    assert modelled_s(in_order, costs, 2) == pytest.approx(800e-6)
