"""What is concluded of a path, by hand-made evidence of a 50 ms, 100 MB/s one."""

import math
from dataclasses import replace

import pytest

from kvtransfer.path_evidence import HIDDEN, Evidence, path_from, with_frames_of
from kvtransfer.path_model import Path
from kvtransfer.send_record import FrameTimes

MB = 1_000_000


def frames(seconds: float, nbytes: int = MB) -> FrameTimes:
    times = FrameTimes()
    times.add(nbytes, seconds)
    return times


# 100 frames of 1 MB in a stream: 10 ms each on the line.
STREAM = Evidence(
    page_bytes=100 * MB,
    duration_s=1.05,
    frame_bytes=MB,
    ping_rtt_s=0.051,
    tcp_rtt_s=0.050,
    pair_bytes_per_s=(100e6, 100e6),
    train_bytes_per_s=100e6,
    tcp_window_bytes=math.inf,
    send_cost_s=0.001,
    receive_cost_s=0.002,
    first=frames(0.066),
    lone=FrameTimes(),
)
# The same one at a time: 50 ms + 10 ms + 3 ms + a message's 1 ms.
ALONE = replace(
    STREAM, duration_s=6.4, train_bytes_per_s=0.0, first=frames(0.064), lone=frames(0.064)
)


def test_a_stream() -> None:
    path = path_from(STREAM)
    assert path == Path(0.050, pytest.approx(100e6), pytest.approx(0.004), pytest.approx(0.0025))


def test_one_at_a_time_on_a_pair_that_carried_more_before() -> None:
    path = path_from(ALONE)
    assert path.link_bytes_per_s == 100e6
    assert path.frame_cost_s == pytest.approx(0.004)
    assert path.restart_s == 0.0


def test_one_at_a_time_on_a_pair_that_carried_nothing_else() -> None:
    """Its own rate, 1 MB in 64 ms, is not the line's."""
    path = path_from(replace(ALONE, pair_bytes_per_s=(15e6, 15e6)))
    assert path.link_bytes_per_s == pytest.approx(100e6)
    assert path.frame_cost_s == pytest.approx(0.004)


def test_what_tcp_adds_to_a_lone_frame_is_not_software() -> None:
    path = path_from(replace(ALONE, lone=frames(0.094)))
    assert path.restart_s == pytest.approx(0.030 - 0.003)
    assert path.frame_cost_s == pytest.approx(0.007)
    at_once = replace(ALONE, ping_rtt_s=0.001, tcp_rtt_s=0.0, lone=frames(0.044))
    assert path_from(at_once).restart_s == 0.0  # without a round trip there is nothing to wait for


def test_a_long_ping_is_a_long_path() -> None:
    """The kernel remembers its least round trip for minutes."""
    path = path_from(replace(STREAM, ping_rtt_s=0.2))
    assert path.rtt_s == 0.2


def test_pings_that_were_slow_do_not_make_frames_slower_than_they_were() -> None:
    path = path_from(replace(STREAM, ping_rtt_s=0.0549, send_cost_s=0.0099, first=FrameTimes()))
    assert path.frame_cost_s - path.receive_cost_s <= 0.0101


def test_a_line_that_tcp_waited_for_is_not_hidden_by_software() -> None:
    """Pings that took 9 ms longer would explain all 10 ms of a frame; two programs that were ahead
    of TCP say that they do not."""
    slow_pings = replace(STREAM, ping_rtt_s=0.059)
    assert path_from(slow_pings).receive_cost_s == pytest.approx(0.0065)
    backlogged = path_from(replace(slow_pings, backlog_share=0.9))
    assert backlogged.link_bytes_per_s == pytest.approx(100e6)
    assert backlogged.frame_interval_s(MB) == pytest.approx(0.010)
    assert backlogged.receive_cost_s < 0.009


def test_a_first_frame_says_nothing_of_a_line_that_tcp_waited_for() -> None:
    """It found the line idle, and pings that queued are no software to be taken off."""
    lucky = replace(STREAM, first=frames(0.0505))
    assert path_from(lucky).link_bytes_per_s > 1e9
    assert path_from(replace(lucky, backlog_share=0.9)).link_bytes_per_s == pytest.approx(100e6)
    assert path_from(replace(lucky, backlog_share=0.4)).link_bytes_per_s > 1e9


def test_pings_that_queued_are_no_software() -> None:
    queued = replace(STREAM, ping_rtt_s=0.059, least_ping_s=0.051)
    assert path_from(queued) == path_from(STREAM)


def test_software_that_explains_a_new_rate_hides_the_line() -> None:
    slow = replace(STREAM, send_cost_s=0.0095, first=FrameTimes())
    assert path_from(slow).link_bytes_per_s == pytest.approx(100e6)
    new = replace(slow, pair_bytes_per_s=(0.0, 100e6))
    assert path_from(new).link_bytes_per_s == pytest.approx(HIDDEN * 100e6)


def test_buffers_that_explain_a_rate_hide_the_line() -> None:
    assert path_from(replace(STREAM, tcp_window_bytes=5e6)).link_bytes_per_s == HIDDEN * 100e6
    assert path_from(replace(STREAM, tcp_window_bytes=10e6)).link_bytes_per_s == 100e6


def test_frames_of_another_size() -> None:
    path = Path(0.05, 100e6, frame_cost_s=0.004, receive_cost_s=0.001)
    larger = with_frames_of(path, MB, 2 * MB)
    assert larger.frame_cost_s == pytest.approx(0.004 + 2.4e-9 * MB)
    assert larger.receive_cost_s == pytest.approx(larger.frame_cost_s / 4)
    assert with_frames_of(path, MB, MB) == path
