"""The verdict and its sentence, of transfers whose answer is plain."""

import math

from kvtransfer.accounting import SendState
from kvtransfer.path_model import Path, Shape, Step
from kvtransfer.verdict import Judgement, Measured, Verdict, judge

PRODUCER, PREPARE, WINDOW, TRANSPORT = SendState
KiB, MiB = 2**10, 2**20
WAN = Path(rtt_s=0.05, link_bytes_per_s=120e6, frame_cost_s=0.0005, receive_cost_s=0.0003)


def said(
    shape: Shape,
    path: Path,
    duration_s: float,
    shares: dict[SendState, float],
    *,
    exposed_s: float = 0.0,
    tcp_window_bytes: float = math.inf,
) -> Judgement:
    everything = {**dict.fromkeys(SendState, 0.0), **shares}
    return judge(shape, path, Measured(duration_s, exposed_s, everything, tcp_window_bytes))


def at_once(page_bytes: int, frame_bytes: int, window_bytes: int) -> Shape:
    return Shape((Step(0.0, page_bytes),), frame_bytes, window_bytes)


def test_one_page_at_a_time_over_a_long_path() -> None:
    """The example of the documentation: 128 pages of 360 KiB, one after the other."""
    shape = at_once(128 * 360 * KiB, 360 * KiB, window_bytes=0)
    judged = said(shape, WAN, 6.9, {WINDOW: 6.5, PREPARE: 0.4})
    assert judged.verdict is Verdict.RTT
    assert judged.text == (
        "rtt_bound: 94 % of 6.9 s waiting for acknowledgements of 360 KiB frames over a 50 ms path;"
        " `auto` would take about 0.45 s"
    )


def test_a_window_that_is_too_small() -> None:
    shape = at_once(256 * MiB, 2 * MiB, window_bytes=2 * MiB)
    judged = said(shape, WAN, 9.0, {WINDOW: 8.1})
    assert judged.verdict is Verdict.RTT
    assert "90 % of 9 s waiting for acknowledgements with at most 2 MiB in flight" in judged.text


def test_buffers_of_the_kernel_that_are_too_small() -> None:
    shape = at_once(256 * MiB, 2 * MiB, window_bytes=3 * MiB)
    shares = {WINDOW: 0.5, TRANSPORT: 8.0}
    judged = said(shape, WAN, 9.0, shares, tcp_window_bytes=3 * MiB)
    assert judged.verdict is Verdict.RTT
    assert "94 % of 9 s" in judged.text
    assert "3 MiB in flight (TCP's send buffers, net.ipv4.tcp_wmem)" in judged.text


def test_small_frames_on_a_short_path() -> None:
    path = Path(0.0002, 600e6, frame_cost_s=0.0005, receive_cost_s=0.0003)
    judged = said(at_once(48 * MiB, 12 * KiB, 64 * MiB), path, 1.3, {TRANSPORT: 1.2})
    assert judged.verdict is Verdict.SOFTWARE
    assert judged.text == (
        "software_bound: about 0.5 ms of processing at both ends for each of 4096 frames of 12 KiB,"
        " in 1.3 s; `auto` would take about 90 ms"
    )


def test_a_full_line() -> None:
    judged = said(at_once(256 * MiB, 2 * MiB, 64 * MiB), WAN, 2.3, {WINDOW: 2.0, PREPARE: 0.3})
    assert judged.verdict is Verdict.BANDWIDTH
    assert judged.text == (
        "bandwidth_bound: 256 MiB take 2.2 s of 2.3 s at the path's 0.96 Gbit/s;"
        " no mode would be much faster"
    )


def test_pages_that_are_computed_slowly() -> None:
    steps = tuple(Step(float(second), 8 * MiB) for second in range(4))
    shape = Shape(steps, 2 * MiB, 64 * MiB, handoff_s=3.0)
    judged = said(shape, WAN, 3.12, {PRODUCER: 2.8}, exposed_s=0.12)
    assert judged.verdict is Verdict.COMPUTE
    assert judged.text == (
        "compute_bound: 90 % of 3.1 s waiting for pages to be computed; 0.12 s passed after the"
        " last of them, over a 50 ms path"
    )


def test_a_full_window_on_a_full_line_waits_for_acknowledgements_too() -> None:
    """The shares alone would say that the round trip is to blame."""
    judged = said(at_once(256 * MiB, 2 * MiB, 16 * MiB), WAN, 2.3, {WINDOW: 2.3})
    assert judged.verdict is Verdict.BANDWIDTH
