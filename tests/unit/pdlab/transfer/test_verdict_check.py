"""A verdict is held against what happens when R, B or o is removed."""

import pytest

from kvtransfer.path_model import Path, Shape, Step, modelled_s
from pdlab.records import Cell
from pdlab.transfer.verdict_check import BANDWIDTH, RTT, SOFTWARE, check_verdicts, share_right
from transfer_cells import KIB, MIB, cell

PAGE = 64 * KIB
PAYLOAD = 4 * MIB
FRAME_COST_S = 0.001
FAST = 1e10  # bytes/s of a link without a set rate


def measured(arm: str, rtt_s: float, rate_bps: float | None, verdict: str, cost_s: float) -> Cell:
    """What a perfect measurement would give: the model's own time."""
    line = FAST if rate_bps is None else 0.965 * rate_bps / 8
    window = 0 if arm == "sequential" else 64 * MIB
    took_s = modelled_s(Shape((Step(0.0, PAYLOAD),), PAGE, window), Path(rtt_s, line, cost_s))
    return cell(
        arm,
        8 * PAYLOAD / took_s / 1e9,
        rtt_s=rtt_s,
        rate_bps=rate_bps,
        payload_bytes=PAYLOAD,
        frame_bytes=PAGE,
        window_bytes=window or None,
        verdict=verdict,
    )


def grid(arm: str, verdict: str, cost_s: float = FRAME_COST_S) -> list[Cell]:
    return [
        measured(arm, rtt_s, rate, verdict, cost_s) for rtt_s in (0.0, 0.05) for rate in (1e9, None)
    ]


def gains(cells: list[Cell], rtt_s: float) -> dict[str, float]:
    (one,) = (c for c in check_verdicts(cells) if c.cell.rtt_s == rtt_s)
    return one.gains_s


def test_one_frame_at_a_time_over_a_distance_gains_most_without_its_round_trips() -> None:
    found = gains(grid("sequential", RTT), 0.05)
    assert found[RTT] == pytest.approx(64 * 0.05, rel=0.01)
    assert found[SOFTWARE] == pytest.approx(64 * FRAME_COST_S, rel=0.1)
    assert max(found, key=lambda name: found[name]) == RTT


def test_the_same_on_the_spot_is_bound_by_software() -> None:
    found = gains(grid("sequential", SOFTWARE), 0.0)
    assert max(found, key=lambda name: found[name]) == SOFTWARE


def test_a_stream_that_fills_the_line_is_bound_by_it() -> None:
    found = gains(grid("coalesced", BANDWIDTH, cost_s=1e-5), 0.0)
    assert max(found, key=lambda name: found[name]) == BANDWIDTH


def test_the_share_counts_wrong_verdicts() -> None:
    cells = grid("sequential", RTT)  # true at 50 ms, not at 0 ms
    (figure,) = share_right(cells)
    assert figure.value == 0.5


def test_two_gains_that_are_close_are_both_right() -> None:
    """S/B is 0.543 ms; o of 0.6 ms gains little more."""
    (near,) = (c for c in check_verdicts(grid("sequential", BANDWIDTH, 0.0006)) if not c.cell.rtt_s)
    assert near.gains_s[SOFTWARE] > near.gains_s[BANDWIDTH]
    assert near.agrees


def test_without_a_partner_nothing_is_judged() -> None:
    alone = [c for c in grid("sequential", RTT) if c.rate_bps is not None]
    assert check_verdicts(alone) == []
    assert list(share_right(alone)) == []
