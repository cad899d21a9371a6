"""Every bar finds its figures among the cells, and says met only when all of them are."""

from collections.abc import Sequence

import pytest

from pdlab.records import Cell
from pdlab.transfer.bars import BARS
from pdlab.transfer.cases import ALONE, BEHIND, CUT, FIRST, RATE_DROP, TENTH
from pdlab.transfer.judging import Judged, judge
from pdlab.transfer.suites import SUITES
from transfer_cells import KIB, MIB, cell


def judged(what: str, cells: Sequence[Cell]) -> Judged:
    (one,) = (one for one in judge(BARS, cells) if one.bar.what.startswith(what))
    return one


def value(what: str, *cells: Cell) -> float:
    (figure,) = judged(what, cells).figures
    assert figure.value is not None
    return figure.value


FIRST_ROW = "`auto` / `raw_tcp`, 256 MiB, 1 Gbit/s"


def test_the_better_raw_arm_is_the_yardstick() -> None:
    raw = [cell("raw_tcp", 0.8, stripes=1), cell("raw_tcp", 0.9, stripes=4)]
    assert value(FIRST_ROW, cell("auto", 0.9), *raw) == pytest.approx(1.0)
    one = cell("auto", 0.9, buffers="stock", rtt_s=0.1)
    stock = [cell("raw_tcp", 0.2, stripes=1, buffers="stock"), cell("raw_tcp", 0.6, stripes=4)]
    assert value("stock TCP buffers, 256 MiB, 100 ms: `auto` / one", one, *stock) > 4


def test_a_bar_is_met_when_every_place_meets_it() -> None:
    good = [cell("auto", 0.9), cell("raw_tcp", 0.9)]
    bad = [cell("auto", 0.5, page_bytes=12 * KIB), cell("raw_tcp", 0.9, page_bytes=12 * KIB)]
    assert judged(FIRST_ROW, good).is_met is True
    both = judged(FIRST_ROW, [*good, *bad])
    assert both.is_met is False
    assert both.worst is not None and "12 KiB" in both.worst.place
    assert judged(FIRST_ROW, []).is_met is None


def test_void_cells_count_for_nothing_and_a_failed_one_is_not_met() -> None:
    void = [cell("auto", 0.1, void="slow"), cell("raw_tcp", 0.1, void="slow")]
    good = [cell("auto", 0.9), cell("raw_tcp", 0.9)]
    assert judged(FIRST_ROW, void).is_met is None
    assert judged(FIRST_ROW, [*void, *good]).is_met is True
    assert judged(FIRST_ROW, [cell("auto", 0.0), cell("raw_tcp", 0.9)]).is_met is False


def test_against_the_bound() -> None:
    """32 MiB at 0.965 Gbit/s take 278 ms, and a round trip."""
    small = cell("auto", 8 * 32 * MIB / (32 * MIB * 8 / 0.965 + 0.05e9), payload_bytes=32 * MIB)
    assert value("`auto` / (payload", small) == pytest.approx(1.0)


def test_o_of_the_sequential_model_is_measured_at_0_ms() -> None:
    """S = 360 KiB: S/B is 3.06 ms; with o = 1 ms it takes 4.06 ms at 0 ms, 54.06 at 50 ms."""
    size = 8 * 360 * KIB
    shape = {"page_bytes": 360 * KIB, "frame_bytes": 360 * KIB}
    frame_s = size / 0.965e9 + 0.001
    near = cell("sequential", size / frame_s / 1e9, rtt_s=0.0, **shape)
    far = cell("sequential", 0.9 * size / (0.05 + frame_s) / 1e9, **shape)
    assert value("`sequential` away", near, far) == pytest.approx(0.1)
    assert judged("`sequential` away", [far]).is_met is None


def test_first_and_tenth_of_a_new_pair() -> None:
    cells = cell("auto", 0.5, case=FIRST), cell("auto", 0.8, case=TENTH)
    assert value("first transfer of a pair", *cells) == pytest.approx(1.6)


def test_behind_a_large_one() -> None:
    """Alone 100 ms; behind it 200: two thirds of 4 x 50 + 100."""
    alone = cell("auto", 8 * MIB / 0.1 / 1e9, payload_bytes=MIB, case=ALONE)
    behind = cell("auto", 8 * MIB / 0.2 / 1e9, payload_bytes=MIB, case=BEHIND)
    assert value("1 MiB behind", alone, behind) == pytest.approx(2 / 3)


def test_the_window_after_a_change() -> None:
    """2 BDP of 0.965 x 100 Mbit/s and 50 ms are 1.206 MB."""
    changed = cell("auto", 0.1, rate_bps=1e8, window_bytes=1_809_375, case=RATE_DROP)
    assert value("rate / 10", changed) == pytest.approx(0.5)
    lost = cell("auto", 0.1, verified=False, case=CUT)
    assert judged("a 2 s cut", [lost]).is_met is False


def test_memory_is_bound_by_the_window() -> None:
    grown = cell("auto", 0.9, rss_growth_bytes=44 * MIB, window_bytes=12 * MIB)
    assert value("resident memory", grown) == pytest.approx(0.5)


def test_one_page_that_differs_fails_the_last_bar() -> None:
    assert (
        judged("every page", [cell("auto", 0.9), cell("bulk", 0.1, verified=False)]).is_met is False
    )


def test_the_suite_measures_every_bar() -> None:
    """A cell for each arm and case of its steps, all at the same speed, leaves no bar without."""
    cells: list[Cell] = []
    for link, step in enumerate(SUITES["bars"]()):
        trial = step.trial
        cases = {"NewPair": (FIRST, TENTH), "Behind": (ALONE, BEHIND)}.get(
            type(step).__name__, ("",)
        )
        if type(step).__name__ == "Midway":
            cases = (step.change.case,)
        # Cells of one arm on one profile share a link, so that sequential ones find their o.
        cells += [
            cell(
                "raw_tcp" if arm.startswith("raw_tcp") else arm,
                0.5,
                stripes=4 if arm == "raw_tcp_4" else 1,
                rtt_s=trial.profile.rtt_s,
                rate_bps=trial.profile.rate_bps,
                page_bytes=trial.page_bytes,
                payload_bytes=trial.payload_bytes,
                buffers=trial.tcp.buffers,
                congestion=trial.tcp.congestion or "bbr",
                loss=trial.profile.loss,
                rss_growth_bytes=MIB,
                case=case,
                link=link,
            )
            for arm in trial.arms
            for case in cases
        ]
    assert [one.bar.what for one in judge(BARS, cells) if one.is_met is None] == []
