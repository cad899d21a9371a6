"""Coverage by (page, layer), in any order, with repeats."""

import random

import pytest

from kvtransfer.messages import PageRun
from kvtransfer.reassembly import Reassembly
from page_memory import TINY
from pdcore.errors import ProtocolViolation

LAYER = TINY.layer_bytes


def test_complete_when_every_layer_of_every_page_came() -> None:
    parts = [PageRun(page, 1, layer, 1) for page in range(4) for layer in range(3)]
    random.Random(3).shuffle(parts)
    reassembly = Reassembly(4, TINY)
    for number, part in enumerate(parts):
        assert not reassembly.is_complete
        assert reassembly.num_missing == 12 - number
        assert reassembly.add(part)
        assert not reassembly.add(part)
    assert reassembly.is_complete


def test_overlapping_runs_count_once() -> None:
    reassembly = Reassembly(4, TINY)
    assert reassembly.add(PageRun(0, 3, 0, 3))
    assert reassembly.add(PageRun(2, 2, 0, 3))
    assert reassembly.is_complete
    assert not reassembly.add(PageRun(0, 4, 1, 1))


@pytest.mark.parametrize(
    "run",
    [
        PageRun(4, 1, 0, 3),
        PageRun(3, 2, 0, 3),
        PageRun(0, 1, 0, 4),
        PageRun(0, 1, 3, 1),
        PageRun(0, 0, 0, 3),
        PageRun(0, 1, 0, 0),
        PageRun(2**31, 2**31, 0, 3),
    ],
)
def test_outside_is_a_violation(run: PageRun) -> None:
    with pytest.raises(ProtocolViolation, match="the transfer has 4 pages of 3 layers"):
        Reassembly(4, TINY).check([run], run.num_parts * LAYER)


@pytest.mark.parametrize(
    ("runs", "size"),
    [
        ([PageRun(0, 1, 0, 3)], 3 * LAYER - 1),
        ([PageRun(0, 1, 0, 3), PageRun(1, 1, 0, 1)], 3 * LAYER),
        ([], 0),
        ([], 5),
    ],
)
def test_payload_of_another_size_is_a_violation(runs: list[PageRun], size: int) -> None:
    with pytest.raises(ProtocolViolation, match=f"payload of a frame is {size} bytes"):
        Reassembly(4, TINY).check(runs, size)


def test_what_fits_passes() -> None:
    Reassembly(4, TINY).check([PageRun(0, 2, 0, 3), PageRun(3, 1, 2, 1)], 7 * LAYER)
