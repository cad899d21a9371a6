"""The model: its formulas by hand-computed figures, and the frame-by-frame rules against them."""

import random
from dataclasses import replace

import pytest

from kvtransfer.path_model import (
    Path,
    Shape,
    Step,
    frames_that_fill_the_link,
    modelled_s,
    sequential_bytes_per_s,
    streamed_s,
    windowed_bytes_per_s,
)

# 1 Gbit/s and 50 ms, frames of 2 MiB: S/B = 16.8 ms.
WAN = Path(rtt_s=0.05, link_bytes_per_s=125e6)
FRAME = 2 * 2**20


def test_sequential() -> None:
    assert sequential_bytes_per_s(WAN, FRAME) == pytest.approx(31.4e6, rel=0.01)
    assert sequential_bytes_per_s(WAN, 65536) == pytest.approx(1.297e6, rel=0.01)
    costly = Path(0.05, 125e6, frame_cost_s=0.01)
    assert sequential_bytes_per_s(costly, FRAME) == pytest.approx(27.3e6, rel=0.01)


def test_windowed_is_the_least_of_link_software_and_window() -> None:
    assert windowed_bytes_per_s(WAN, FRAME, 1) == sequential_bytes_per_s(WAN, FRAME)
    assert windowed_bytes_per_s(WAN, FRAME, 2) == 2 * sequential_bytes_per_s(WAN, FRAME)
    assert windowed_bytes_per_s(WAN, FRAME, 9) == 125e6
    slow = Path(0.0, 125e6, frame_cost_s=0.1)
    assert windowed_bytes_per_s(slow, FRAME, 9) == FRAME / 0.1


def test_window_that_fills_the_link() -> None:
    assert frames_that_fill_the_link(WAN, FRAME) == 4
    needed = frames_that_fill_the_link(WAN, FRAME)
    assert windowed_bytes_per_s(WAN, FRAME, needed) == 125e6
    assert windowed_bytes_per_s(WAN, FRAME, needed - 1) < 125e6
    assert frames_that_fill_the_link(Path(0.0, 125e6), FRAME) == 1


def test_streamed() -> None:
    assert streamed_s(WAN, 125_000_000) == pytest.approx(1.05)


def all_ready(payload_bytes: int, frame_bytes: int, window_bytes: int) -> Shape:
    return Shape((Step(0.0, payload_bytes),), frame_bytes, window_bytes)


def test_stop_and_wait_takes_a_round_trip_a_frame() -> None:
    path = Path(0.05, 125e6, frame_cost_s=0.001)
    shape = all_ready(40 * FRAME, FRAME, window_bytes=0)
    assert modelled_s(shape, path) == pytest.approx(
        40 * FRAME / sequential_bytes_per_s(path, FRAME)
    )


def test_a_wide_window_streams() -> None:
    shape = all_ready(128 * FRAME, FRAME, window_bytes=64 * 2**20)
    assert modelled_s(shape, WAN) == pytest.approx(streamed_s(WAN, 128 * FRAME))


def test_a_narrow_window_sets_the_rate() -> None:
    shape = all_ready(1000 * FRAME, FRAME, window_bytes=3 * FRAME)
    rate = shape.page_bytes / modelled_s(shape, WAN)
    assert rate == pytest.approx(windowed_bytes_per_s(WAN, FRAME, 3), rel=0.01)


def test_software_that_is_slower_than_the_link_sets_the_rate() -> None:
    """Both ends work at the same time: the slower one counts."""
    path = Path(0.01, 125e6, frame_cost_s=0.05, receive_cost_s=0.03)
    shape = all_ready(1000 * FRAME, FRAME, window_bytes=64 * 2**20)
    assert shape.page_bytes / modelled_s(shape, path) == pytest.approx(FRAME / 0.03, rel=0.01)


def test_what_is_computed_late_is_sent_late() -> None:
    """Four chunks a second apart: all but the last have left before it is ready."""
    chunk = 5 * FRAME
    steps = tuple(Step(float(second), chunk) for second in range(4))
    shape = Shape(steps, FRAME, 64 * 2**20, handoff_s=3.0)
    assert modelled_s(shape, WAN) == pytest.approx(3.0 + streamed_s(WAN, chunk))
    assert modelled_s(replace(shape, handoff_s=9.0), WAN) == pytest.approx(9.0 + 0.05)


def test_frame_by_frame_agrees_with_the_formula_for_all_at_once() -> None:
    """Two steps at the same moment are one; groups of frames cost a little accuracy."""
    chance = random.Random(3)
    for _ in range(300):
        path = Path(
            rtt_s=chance.choice([0.0, 0.001, 0.01, 0.1]),
            link_bytes_per_s=10 ** chance.uniform(6, 10),
            frame_cost_s=(cost_s := chance.choice([0.0, 1e-4, 1e-3, 1e-2])),
            receive_cost_s=cost_s * chance.random(),
        )
        frame, num_frames = chance.randint(1000, 2**21), chance.randint(2, 2000)
        window = frame * chance.choice([0, 1, 2, 7, 40, 400])
        half = frame * (num_frames // 2)
        whole = all_ready(frame * num_frames, frame, window)
        in_two = Shape((Step(0.0, half), Step(0.0, whole.page_bytes - half)), frame, window)
        assert modelled_s(in_two, path) == pytest.approx(modelled_s(whole, path), rel=0.02)
