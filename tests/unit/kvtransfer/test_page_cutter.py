"""Runs cover every layer of every ready page once, in order."""

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtransfer.limits import FrameShape, Starts
from kvtransfer.messages import PageRun
from kvtransfer.page_cutter import PageCutter

NUM_LAYERS = 5


FRAME = FrameShape(4, NUM_LAYERS)
EARLY = Starts.WHILE_PREFILL_RUNS
SHAPES = [FrameShape(1, 1), FrameShape(1, 3), FrameShape(1, NUM_LAYERS), FrameShape(4, NUM_LAYERS)]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(SHAPES), min_size=1, max_size=6),
    st.lists(st.integers(0, 20), max_size=8),
)
def test_every_part_once_in_order(shapes: list[FrameShape], ready: list[int]) -> None:
    """Whatever shapes are asked for, one after the other."""
    cutter, parts, frames = PageCutter(EARLY, 20, NUM_LAYERS), [], cycle(shapes)
    for num_pages in [*ready, 20]:
        cutter.ready(num_pages)
        while (run := cutter.peek(frame := next(frames))) is not None:
            assert run.num_pages <= frame.pages and run.num_layers <= frame.layers
            before = cutter.num_uncut
            cutter.cut(run)
            assert cutter.num_uncut == before - run.num_parts
            parts += [
                (run.first_page + page, run.first_layer + layer)
                for page in range(run.num_pages)
                for layer in range(run.num_layers)
            ]
    assert parts == [(page, layer) for page in range(20) for layer in range(NUM_LAYERS)]
    assert cutter.all_cut and cutter.all_ready


def test_a_page_that_was_begun_is_finished_alone() -> None:
    cutter = PageCutter(EARLY, 3, NUM_LAYERS)
    cutter.ready(3)
    cutter.cut(PageRun(0, 1, 0, 3))
    assert cutter.peek(FrameShape(2, NUM_LAYERS)) == PageRun(0, 1, 3, 2)


def test_after_prefill_nothing_leaves_early() -> None:
    cutter = PageCutter(Starts.AFTER_PREFILL, 3, NUM_LAYERS)
    assert cutter.ready(2)
    assert cutter.peek(FRAME) is None
    assert cutter.ready(3)
    assert cutter.peek(FRAME) == PageRun(0, 3, 0, NUM_LAYERS)


def test_a_run_may_grow_until_all_is_ready() -> None:
    cutter = PageCutter(EARLY, 6, NUM_LAYERS)
    cutter.ready(5)
    first = cutter.peek(FRAME)
    assert first is not None and not cutter.may_grow(first, FRAME)
    cutter.cut(first)
    second = cutter.peek(FRAME)
    assert second is not None and cutter.may_grow(second, FRAME)
    cutter.ready(6)
    assert not cutter.may_grow(second, FRAME)


def test_ready_says_what_is_news() -> None:
    cutter = PageCutter(EARLY, 3, NUM_LAYERS)
    assert cutter.ready(2)
    assert not cutter.ready(2)
    assert not cutter.ready(1)
    with pytest.raises(AssertionError):
        cutter.ready(4)
