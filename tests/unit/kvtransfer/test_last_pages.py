"""When the last pages of a prompt may be ready."""

import pytest

from kvtransfer.last_pages import SOONEST, LastPages


def test_the_pace_of_the_chunk_before_tells() -> None:
    pages = LastPages(96)
    assert pages.ready(32, 10.0) is None  # how long it took, nobody knows
    assert pages.ready(64, 12.0) == (32, 12.0 + SOONEST * 2.0)


def test_a_smaller_rest_takes_less_time() -> None:
    pages = LastPages(72)
    pages.ready(32, 10.0)
    left, at_s = pages.ready(64, 12.0) or (0, 0.0)
    assert left == 8
    assert at_s == pytest.approx(12.0 + SOONEST * 0.5)


def test_nothing_is_said_while_more_than_a_chunk_is_left_or_when_all_is_ready() -> None:
    pages = LastPages(100)
    assert [pages.ready(n, float(n)) for n in (20, 40, 60)] == [None, None, None]
    assert pages.ready(60, 70.0) is None  # a repeat
    assert pages.ready(80, 80.0) is not None
    assert pages.ready(100, 100.0) is None
