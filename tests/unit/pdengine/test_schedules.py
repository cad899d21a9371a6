"""Every schedule covers every head and token of every row once, in pieces that can be merged."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdengine.attention.adaptive import Adaptive, Costs, modelled_s
from pdengine.attention.schedules import (
    FIXED,
    LEAST_PART_TOKENS,
    Row,
    View,
    per_row,
    split,
    workqueue,
)

lengths = st.lists(st.integers(1, 5000), min_size=1, max_size=40)


def view_of(lengths: list[int], num_kv_heads: int = 3, num_workers: int = 2) -> View:
    rows = [Row(i, i, first=i, last=i + length) for i, length in enumerate(lengths)]
    return View(rows, num_kv_heads, num_workers)


@pytest.mark.parametrize("name", FIXED)
@given(lengths=lengths, num_kv_heads=st.integers(1, 8), num_workers=st.integers(1, 16))
def test_everything_once(
    name: str, lengths: list[int], num_kv_heads: int, num_workers: int
) -> None:
    view = view_of(lengths, num_kv_heads, num_workers)
    pieces = FIXED[name](view).pieces
    expected = {(row, head): row.num_tokens for row in view.rows for head in range(num_kv_heads)}
    ends: dict[tuple[Row, int], int] = {}
    for piece in pieces:
        for head in range(piece.first_head, piece.last_head):
            assert piece.first == ends.get((piece.row, head), piece.row.first)
            assert piece.first < piece.last
            ends[piece.row, head] = piece.last
            expected[piece.row, head] -= piece.last - piece.first
    assert set(expected.values()) == {0}


@pytest.mark.parametrize("name", FIXED)
@given(lengths=lengths)
def test_pieces_of_a_row_and_its_heads_stand_together(name: str, lengths: list[int]) -> None:
    pieces = FIXED[name](view_of(lengths)).pieces
    groups = [key for key, _ in groupby(pieces, lambda p: (p.row.row, p.first_head, p.last_head))]
    assert len(groups) == len(set(groups))


def test_a_row_is_one_piece_or_cut_into_equal_parts() -> None:
    view = view_of([4000, 10])
    assert [piece.last - piece.first for piece in per_row(view).pieces] == [4000, 10]
    parts = [piece.last - piece.first for piece in split(view).pieces]
    assert parts == [1000, 1000, 1000, 1000, 10]


def test_short_rows_are_not_cut() -> None:
    view = view_of([LEAST_PART_TOKENS] * 8, num_workers=16)
    assert all(len(FIXED[name](view).pieces) <= 8 * 3 for name in FIXED)


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
    best_s = min(modelled_s(fixed(view), COSTS, num_workers) for fixed in FIXED.values())
    assert modelled_s(Adaptive(COSTS)(view), COSTS, num_workers) == best_s


def test_a_worker_alone_reads_faster() -> None:
    """Two workers, 1000 and 3000 tokens: both read for 1000, then one alone for 2000."""
    view = view_of([1000, 3000], num_workers=2)
    expected_s = 1000 * 1e-6 + 2000 * 0.6e-6 + 1e-6
    assert modelled_s(per_row(view), COSTS, 2) == pytest.approx(expected_s)


def test_who_is_free_first_takes_the_next() -> None:
    """Longest first: 512 beside four of 128."""
    view = view_of([128, 512, 128, 128, 128], num_workers=2)
    assert next(piece.last - piece.first for piece in workqueue(view).pieces) == 512 // 4
    assert modelled_s(workqueue(view), COSTS, 2) >= 512 * 1e-6
