"""How much a frame holds: fixed, or what the path serves in a part of its round trip."""

import pytest

from kvtransfer.frame_size import LEAST_FRAME_BYTES, FrameSize
from kvtransfer.limits import FrameShape, limits_for
from kvtransfer.path import PathEstimator
from pdcore.kv_layout import KvLayout
from pdcore.settings import TransferSettings

SETTINGS = TransferSettings()
SMOLLM2 = KvLayout("smollm2", 30, 3, 64, 16, "bfloat16")  # 360 KiB a page
LLAMA_8B = KvLayout("llama-3-8b", 32, 8, 128, 16, "bfloat16")  # 2 MiB a page
MUCH = 2**30


def path_with(rate: float, rtt_s: float) -> PathEstimator:
    path = PathEstimator()
    path.on_ping(rtt_s, now=0.0)
    path.delivered(path.sent(int(rate), now=0.0), int(rate), now=0.3)
    marks = [path.sent(int(rate / 10), now=1.0) for _ in range(20)]
    for number, mark in enumerate(marks, start=1):
        path.delivered(mark, int(rate / 10), now=1.0 + number / 10)
    return path


def size(layout: KvLayout, path: PathEstimator, mode: str = "auto") -> FrameSize:
    return FrameSize(limits_for(mode, SETTINGS, layout), layout, path)


def test_a_fixed_modes_frames_are_of_one_shape() -> None:
    fixed = size(SMOLLM2, path_with(1e6, 0.1), "striped")
    assert fixed.shape(MUCH, 4) == fixed.shape(1, 4) == FrameShape(5, 30)
    assert fixed.small_bytes() == 2**20


def test_as_large_as_may_be_while_the_path_is_unknown() -> None:
    assert size(SMOLLM2, PathEstimator()).shape(MUCH, 1) == FrameShape(11, 30)
    assert size(LLAMA_8B, PathEstimator()).shape(MUCH, 1) == FrameShape(2, 32)


@pytest.mark.parametrize(
    ("rate", "rtt_s", "shape"),
    [
        (1e9, 0.0001, FrameShape(11, 30)),  # 4 MiB and no more
        (1.2e8, 0.0001, FrameShape(2, 30)),  # 8 ms
        (1.2e8, 0.05, FrameShape(4, 30)),  # a quarter of 50 ms
        (1e6, 0.0001, FrameShape(1, 21)),  # 256 KiB and no less: a page in parts
    ],
)
def test_what_the_path_serves_in_a_part_of_its_round_trip(
    rate: float, rtt_s: float, shape: FrameShape
) -> None:
    assert size(SMOLLM2, path_with(rate, rtt_s)).shape(MUCH, 1) == shape


def test_the_last_frames_are_shared_by_the_stripes() -> None:
    fast = size(LLAMA_8B, path_with(1e9, 0.1))
    assert fast.shape(4 * 2**21, 4) == FrameShape(1, 32)
    assert fast.shape(2 * 2**21, 4) == FrameShape(1, 16)
    assert fast.shape(1, 4) == FrameShape(1, LEAST_FRAME_BYTES // LLAMA_8B.layer_bytes)


def test_what_is_held_back_is_less_than_half_a_frame_of_that_path() -> None:
    assert size(LLAMA_8B, path_with(1e9, 0.0001)).small_bytes() == 2 * 2**20
    assert size(SMOLLM2, path_with(1e6, 0.0001)).small_bytes() == LEAST_FRAME_BYTES // 2
