"""Samples become cells: medians, what was cut short, what is void."""

from dataclasses import replace

import pytest

from pdcore.errors import PeerUnavailable
from pdlab.link import LinkProfile, TcpSettings
from pdlab.records import LinkRecord
from pdlab.transfer.bench import Bench
from pdlab.transfer.cells import cells_of, failed_cells
from pdlab.transfer.lane import Lane, Sample
from pdlab.transfer.messages import Collected, Sent, Told
from pdlab.transfer.pool import Extent
from pdlab.transfer.trial import Trial

MIB = 2**20
PAGE = 64 * 2**10
TRIAL = Trial(LinkProfile(0.05, 1e9), PAGE, 256 * MIB, ("auto", "raw_tcp_1", "raw_tcp_4"))
LINK = LinkRecord("tun", 0.05, 1e9, 0, 0, None, "large", "bbr", 0.05, 0.05, 9.6e8, "")


class StartedEnds:
    rss_bytes = 500 * MIB


def bench() -> Bench:
    return Bench(
        link=None,  # type: ignore[arg-type]
        record=LINK,
        link_index=3,
        line_bytes_per_s=0.965e9 / 8,
        pool_bytes=0,
        ends_of=lambda arm: StartedEnds(),  # type: ignore[arg-type,return-value]
        advance=lambda: None,
    )


def lane(arm: str, *gbit_per_s: float, num_wrong: int = 0, num_pages: int = 4096) -> Lane:
    made = Lane(arm, StartedEnds(), PAGE, num_pages=num_pages)  # type: ignore[arg-type]
    num_bytes = num_pages * PAGE
    for rate in gbit_per_s:
        sent = Sent(8 * num_bytes / rate / 1e9, cpu_s=0.1, peak_rss_bytes=300 * MIB)
        collected = Collected(0.2, 300 * MIB, num_wrong, "d1")
        made.samples.append(Sample(Extent(0, num_pages), num_bytes, sent, collected))
    return made


def test_medians_and_the_ratio_to_the_better_raw_arm() -> None:
    lanes = [lane("auto", 0.8, 0.9, 0.5), lane("raw_tcp_1", 0.9), lane("raw_tcp_4", 0.88)]
    auto, one, four = cells_of(TRIAL, lanes, bench())
    assert auto.median_goodput_bps == pytest.approx(0.8e9)
    assert auto.ratio_to_raw_tcp == pytest.approx(0.8 / 0.9)
    assert (one.arm, one.stripes, four.arm, four.stripes) == ("raw_tcp", 1, "raw_tcp", 4)
    assert auto.cpu_s_per_gb == pytest.approx(0.3 / (256 * MIB / 1e9))
    assert auto.rss_growth_bytes == 100 * MIB
    assert auto.link == 3 and auto.void is None and auto.verified and not auto.moved_bytes


def test_the_window_is_that_of_most_repetitions() -> None:
    """The last one found its round trip in doubt."""
    auto = lane("auto", 0.9, 0.9, 0.9)
    windows = (12 * MIB, 13 * MIB, 2 * MIB)
    auto.samples[:] = [
        replace(sample, sent=replace(sample.sent, told=told(window_bytes)))
        for sample, window_bytes in zip(auto.samples, windows, strict=True)
    ]
    (cell,) = cells_of(replace(TRIAL, arms=("auto",)), [auto], bench())
    assert cell.window_bytes == 12 * MIB


def told(window_bytes: int) -> Told:
    return Told(
        mode="auto", frames=128, stripes=1, attempts=1, frame_bytes=2 * MIB,
        window_bytes=window_bytes, max_in_flight_bytes=window_bytes, duration_s=1.0,
        producer_s=0.0, prepare_s=0.1, window_s=0.5, transport_s=0.4, verdict="bandwidth_bound",
        verdict_text="", frame_cost_s=1e-4, warmup_bytes=0,
    )  # fmt: skip


def test_a_page_that_differs_is_not_verified() -> None:
    (cell,) = cells_of(replace(TRIAL, arms=("auto",)), [lane("auto", 0.8, num_wrong=1)], bench())
    assert not cell.verified


def test_what_was_cut_short_says_what_it_moved() -> None:
    (cell,) = cells_of(TRIAL, [lane("auto", 0.8, num_pages=100)], bench())
    assert cell.moved_bytes == (100 * PAGE,)


def test_a_slow_yardstick_makes_its_trial_void() -> None:
    """256 MiB in 0.965 Gbit/s and 50 ms: at best 0.944 Gbit/s, of which 0.93 is 0.878."""
    for raw, is_void in ((0.87, True), (0.885, False)):
        auto, _ = cells_of(TRIAL, [lane("auto", 0.8), lane("raw_tcp_1", raw)], bench())
        assert (auto.void is not None) is is_void
    assert auto.void is None


@pytest.mark.parametrize(
    "trial",
    [
        replace(TRIAL, tcp=TcpSettings(buffers="stock")),
        replace(TRIAL, profile=LinkProfile(0.05, 5e9)),
        replace(TRIAL, profile=LinkProfile(0.05, 1e9, loss=0.001)),
    ],
)
def test_elsewhere_a_slow_yardstick_is_what_is_to_be_seen(trial: Trial) -> None:
    auto, _ = cells_of(trial, [lane("auto", 0.8), lane("raw_tcp_1", 0.2)], bench())
    assert auto.void is None


def test_a_step_that_failed_has_a_cell_for_each_arm() -> None:
    cells = failed_cells(TRIAL, PeerUnavailable("gone"), bench())
    assert len(cells) == 3
    assert all(cell.notes == ("given up: gone",) and not cell.verified for cell in cells)
