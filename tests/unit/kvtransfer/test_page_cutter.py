"""Runs cover every layer of every ready page once, in order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtransfer.limits import SendLimits, Starts
from kvtransfer.messages import PageRun
from kvtransfer.page_cutter import PageCutter

NUM_LAYERS = 5


def limits(pages: int, layers: int, starts: Starts = Starts.WHILE_PREFILL_RUNS) -> SendLimits:
    return SendLimits("test", starts, None, pages, layers, 0, 1)


@settings(deadline=None)
@given(
    st.sampled_from([(1, 1), (1, 3), (1, 5), (4, 5)]),
    st.lists(st.integers(0, 20), max_size=8),
)
def test_every_part_once_in_order(frame: tuple[int, int], ready: list[int]) -> None:
    cutter = PageCutter(limits(*frame), 20, NUM_LAYERS)
    parts = []
    for num_pages in [*ready, 20]:
        cutter.ready(num_pages)
        while (run := cutter.peek()) is not None:
            assert run.num_pages <= frame[0] and run.num_layers <= frame[1]
            cutter.cut(run)
            parts += [
                (run.first_page + page, run.first_layer + layer)
                for page in range(run.num_pages)
                for layer in range(run.num_layers)
            ]
    assert parts == [(page, layer) for page in range(20) for layer in range(NUM_LAYERS)]
    assert cutter.all_cut and cutter.all_ready


def test_after_prefill_nothing_leaves_early() -> None:
    cutter = PageCutter(limits(4, 5, Starts.AFTER_PREFILL), 3, NUM_LAYERS)
    assert cutter.ready(2)
    assert cutter.peek() is None
    assert cutter.ready(3)
    assert cutter.peek() == PageRun(0, 3, 0, NUM_LAYERS)


def test_a_run_may_grow_until_all_is_ready() -> None:
    cutter = PageCutter(limits(4, 5), 6, NUM_LAYERS)
    cutter.ready(5)
    first = cutter.peek()
    assert first is not None and not cutter.may_grow(first)
    cutter.cut(first)
    second = cutter.peek()
    assert second is not None and cutter.may_grow(second)
    cutter.ready(6)
    assert not cutter.may_grow(second)


def test_ready_says_what_is_news() -> None:
    cutter = PageCutter(limits(1, 1), 3, NUM_LAYERS)
    assert cutter.ready(2)
    assert not cutter.ready(2)
    assert not cutter.ready(1)
    with pytest.raises(AssertionError):
        cutter.ready(4)
