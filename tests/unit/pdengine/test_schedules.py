"""Every schedule covers every head and token of every row once, in pieces that can be merged."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdengine.attention.schedules import LEAST_PART_TOKENS, SCHEDULES, Row, View, per_row, split

lengths = st.lists(st.integers(1, 5000), min_size=1, max_size=40)


def view_of(lengths: list[int], num_kv_heads: int = 3, num_workers: int = 2) -> View:
    rows = [Row(i, i, first=i, last=i + length) for i, length in enumerate(lengths)]
    return View(rows, num_kv_heads, num_workers)


@pytest.mark.parametrize("name", SCHEDULES)
@given(lengths=lengths, num_kv_heads=st.integers(1, 8), num_workers=st.integers(1, 16))
def test_everything_once(
    name: str, lengths: list[int], num_kv_heads: int, num_workers: int
) -> None:
    view = view_of(lengths, num_kv_heads, num_workers)
    pieces = SCHEDULES[name](view).pieces
    expected = {(row, head): row.num_tokens for row in view.rows for head in range(num_kv_heads)}
    ends: dict[tuple[Row, int], int] = {}
    for piece in pieces:
        for head in range(piece.first_head, piece.last_head):
            assert piece.first == ends.get((piece.row, head), piece.row.first)
            assert piece.first < piece.last
            ends[piece.row, head] = piece.last
            expected[piece.row, head] -= piece.last - piece.first
    assert set(expected.values()) == {0}


@pytest.mark.parametrize("name", SCHEDULES)
@given(lengths=lengths)
def test_pieces_of_a_row_and_its_heads_stand_together(name: str, lengths: list[int]) -> None:
    pieces = SCHEDULES[name](view_of(lengths)).pieces
    groups = [key for key, _ in groupby(pieces, lambda p: (p.row.row, p.first_head, p.last_head))]
    assert len(groups) == len(set(groups))


def test_a_row_is_one_piece_or_cut_into_equal_parts() -> None:
    view = view_of([4000, 10])
    assert [piece.last - piece.first for piece in per_row(view).pieces] == [4000, 10]
    parts = [piece.last - piece.first for piece in split(view).pieces]
    assert parts == [1000, 1000, 1000, 1000, 10]


def test_short_rows_are_not_cut() -> None:
    view = view_of([LEAST_PART_TOKENS] * 8, num_workers=16)
    assert all(len(SCHEDULES[name](view).pieces) <= 8 * 3 for name in SCHEDULES)
