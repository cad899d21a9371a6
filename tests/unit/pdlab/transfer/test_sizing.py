"""How much a repetition moves and what is carried before it."""

from dataclasses import replace

import pytest

from kvtransfer.limits import limits_for
from pdcore.settings import TransferSettings
from pdlab.link import LinkProfile
from pdlab.transfer.pool import layout_of
from pdlab.transfer.sizing import (
    line_bytes_per_s,
    pages_by_model,
    pages_by_rate,
    waits_for_each_frame,
    warm_up,
)
from pdlab.transfer.trial import Trial

KIB, MIB = 2**10, 2**20
TRIAL = Trial(LinkProfile(0.05, 1e9), 64 * KIB, 256 * MIB, ("auto",))
LINE = line_bytes_per_s(TRIAL.profile, 0.0)


def test_the_line_is_what_packets_leave_of_the_rate_or_what_was_measured() -> None:
    assert pytest.approx(0.965e9 / 8) == LINE
    assert line_bytes_per_s(LinkProfile(), 8e9) == 1e9


def test_every_arm_carries_four_times_two_bdp_first() -> None:
    warm = warm_up(TRIAL, LINE, 512 * MIB)
    carried = warm.num_moves * warm.num_pages * TRIAL.page_bytes
    assert carried == pytest.approx(8 * 0.05 * LINE, rel=0.01)
    assert warm.num_moves == 4


def test_where_the_pool_is_small_there_are_more_moves() -> None:
    warm = warm_up(TRIAL, LINE, 4 * MIB)
    assert warm.num_pages * TRIAL.page_bytes <= 4 * MIB
    carried = warm.num_moves * warm.num_pages * TRIAL.page_bytes
    assert carried == pytest.approx(8 * 0.05 * LINE, rel=0.1)


def test_a_slow_arm_moves_what_fits_in_its_time() -> None:
    assert pages_by_rate(TRIAL, LINE) == TRIAL.num_pages
    slow = pages_by_rate(TRIAL, 10 * MIB)
    assert slow * TRIAL.page_bytes / (10 * MIB) == pytest.approx(0.8 * TRIAL.limit_s, rel=0.01)
    assert pages_by_rate(TRIAL, 1.0) == 1


@pytest.mark.parametrize(
    ("mode", "waits"),
    [("sequential_layer", True), ("bulk", True), ("auto", False), ("raw_tcp_1", False)],
)
def test_which_arms_wait_for_each_frame(mode: str, waits: bool) -> None:
    assert waits_for_each_frame(mode) is waits


def test_one_frame_at_a_time_is_sized_by_round_trips() -> None:
    layout = layout_of(360 * KIB)
    trial = replace(TRIAL, page_bytes=360 * KIB)
    limits = limits_for("sequential", TransferSettings(), layout)
    pages = pages_by_model(trial, LINE, limits, layout.layer_bytes)
    assert 60 <= pages <= 0.8 * trial.limit_s / trial.profile.rtt_s


def test_even_the_slowest_sends_a_few_frames() -> None:
    layout = layout_of(2 * MIB)
    trial = replace(TRIAL, page_bytes=2 * MIB, profile=LinkProfile(0.2, 1e9), limit_s=0.1)
    limits = limits_for("sequential", TransferSettings(), layout)
    assert pages_by_model(trial, LINE, limits, layout.layer_bytes) == 4
