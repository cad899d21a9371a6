"""Predictions against the formulas of the model, by hand, and where shipping beats prefilling."""

import pytest

from kvtransfer.limits import MODES
from kvtransfer.path_evidence import COST_S_PER_BYTE
from kvtransfer.path_prediction import (
    ASSUMED_FRAME_COST_S,
    Model,
    NoGain,
    Prediction,
    ProbedPath,
    predict,
    shipping,
)
from kvtransfer.verdict import Verdict
from pdcore.kv_layout import KvLayout
from pdcore.settings import TransferSettings

# SmolLM2-135M: 12 KiB a layer, 360 KiB a page, 22.5 KiB a token.
LAYOUT = KvLayout("m", num_layers=30, num_kv_heads=3, head_dim=64, page_tokens=16, dtype="bfloat16")
SETTINGS = TransferSettings()
LINE = 120e6
WAN = ProbedPath(rtt_s=0.05, one_bytes_per_s=LINE, all_bytes_per_s=LINE)


def model(prefill_tokens_per_s: float | None = None, max_tokens: int = 8192) -> Model:
    return Model(LAYOUT, max_tokens, step_tokens=512, prefill_tokens_per_s=prefill_tokens_per_s)


def predicted(mode: str, path: ProbedPath = WAN, rate: float | None = None) -> Prediction:
    return predict(mode, 2048, model(rate), path, SETTINGS)


@pytest.mark.parametrize(
    ("mode", "frame_bytes"),
    [("sequential_layer", 12288), ("sequential", 368640)],
)
def test_one_frame_at_a_time_pays_a_round_trip_for_each(mode: str, frame_bytes: int) -> None:
    prediction = predicted(mode)
    cost_s = ASSUMED_FRAME_COST_S + COST_S_PER_BYTE * frame_bytes
    num_frames = 128 * 368640 // frame_bytes
    expected_s = num_frames * (0.05 + frame_bytes / LINE + cost_s)
    assert prediction.transfer_s == pytest.approx(expected_s, rel=1e-6)
    assert (prediction.frame_bytes, prediction.window_bytes) == (frame_bytes, 0)
    assert prediction.bound is Verdict.RTT
    assert prediction.exposed_s == prediction.transfer_s


def test_auto_takes_the_bytes_over_the_rate_and_a_round_trip() -> None:
    prediction = predicted("auto")
    assert prediction.transfer_s == pytest.approx(0.05 + 128 * 368640 / LINE, rel=0.05)
    assert prediction.bound is Verdict.BANDWIDTH


def test_auto_is_never_slower_than_any_mode() -> None:
    best = min(MODES, key=lambda mode: predicted(mode).transfer_s)
    assert predicted("auto").transfer_s == pytest.approx(predicted(best).transfer_s, rel=0.02)


def test_several_connections_bring_what_was_measured_of_them() -> None:
    held_back = ProbedPath(rtt_s=0.1, one_bytes_per_s=30e6, all_bytes_per_s=110e6)
    one, four = predicted("pipelined", held_back), predicted("striped", held_back)
    assert (one.num_connections, four.num_connections) == (1, 4)
    assert one.transfer_s == pytest.approx(0.1 + 128 * 368640 / 30e6, rel=0.05)
    assert four.transfer_s == pytest.approx(0.1 + 128 * 368640 / 110e6, rel=0.05)


@pytest.mark.parametrize(
    ("send_buffer_bytes", "num_connections"),
    [(None, 1), (256 * 2**20, 1), (4 * 2**20, 5)],
    ids=["unknown buffers", "large buffers", "stock buffers"],
)
def test_auto_uses_as_many_connections_as_the_buffers_ask_for(
    send_buffer_bytes: int | None, num_connections: int
) -> None:
    """Over 0.1 s at 110 MB/s: 11 MB on the way."""
    path = ProbedPath(0.1, 30e6, 110e6, send_buffer_bytes)
    assert predicted("auto", path).num_connections == num_connections


def test_autos_window_is_twice_what_fills_the_path_within_bounds() -> None:
    wide = ProbedPath(0.1, 100e6, 100e6)
    assert predicted("auto", wide).window_bytes == pytest.approx(20e6, rel=0.01)
    assert predicted("auto", ProbedPath(2.0, 1e9, 1e9)).window_bytes == 256 * 2**20
    assert predicted("auto", ProbedPath(1e-4, 1e9, 1e9)).window_bytes == 16 * 2**20


def test_early_modes_expose_only_the_last_chunk_where_prefill_is_slower_than_the_line() -> None:
    prediction = predicted("auto", rate=2000)
    last_chunk_s = 32 * 368640 / LINE
    assert prediction.exposed_s == pytest.approx(0.05 + last_chunk_s, rel=0.1)
    assert prediction.transfer_s == pytest.approx(1536 / 2000 + prediction.exposed_s)


def test_early_modes_expose_what_the_line_cannot_carry_meanwhile() -> None:
    fast = predicted("auto", rate=1e6)
    assert fast.exposed_s == pytest.approx(predicted("auto").transfer_s, rel=0.02)


def test_without_a_prefill_rate_only_late_modes_know_what_is_exposed() -> None:
    exposed = {mode: predicted(mode).exposed_s for mode in MODES}
    unknown = {mode for mode, seconds in exposed.items() if seconds is None}
    assert unknown == {"pipelined", "striped", "auto"}


def test_credit_bounds_every_window() -> None:
    small = TransferSettings(credit_bytes=2**20)
    assert predict("windowed", 2048, model(), WAN, small).window_bytes == 2**20


@pytest.mark.parametrize("decode", [500.0, 1000.0, 1900.0])
def test_shipping_wins_from_where_the_two_times_cross(decode: float) -> None:
    """n/P + exposed = n/D, in which a long prompt's exposed time is a constant."""
    prefill = 2000.0
    result = shipping("auto", 2048, model(prefill), decode, WAN, SETTINGS)
    assert result.path_tokens_per_s == pytest.approx(LINE / 23040)
    assert result.local_s == pytest.approx(2048 / decode)
    assert result.from_tokens is not None
    exposed_s = predict("auto", result.from_tokens, model(prefill), WAN, SETTINGS).exposed_s
    assert exposed_s is not None
    crossing = exposed_s / (1 / decode - 1 / prefill)
    assert result.from_tokens == pytest.approx(crossing, abs=2 * 16, rel=0.1)


@pytest.mark.parametrize(
    ("prefill", "decode", "reason"),
    [
        (2000.0, 2000.0, NoGain.DECODE),
        (2000.0, 5000.0, NoGain.DECODE),
        (1e6, 6000.0, NoGain.PATH),
        (2000.0, 1990.0, NoGain.EXPOSED),
    ],
    ids=["equal rates", "decode is faster", "decode is faster than the path", "little to gain"],
)
def test_shipping_never_wins(prefill: float, decode: float, reason: NoGain) -> None:
    """The path carries the KV of 5208 tokens/s; of 8192 tokens the last rate gains 21 ms."""
    result = shipping("auto", 2048, model(prefill), decode, WAN, SETTINGS)
    assert (result.from_tokens, result.no_gain) == (None, reason)
    assert result.shipped_s > result.local_s
    assert result.longest_exposed_s > result.longest_gain_s == 8192 / decode - 8192 / prefill


def test_a_mode_that_uses_little_of_the_path_outweighs_the_gain() -> None:
    result = shipping("sequential", 2048, model(8000), 1000, WAN, SETTINGS)
    assert (result.from_tokens, result.no_gain) == (None, NoGain.EXPOSED)


def test_where_shipping_wins_there_is_no_reason_against_it() -> None:
    assert shipping("auto", 2048, model(2000), 500, WAN, SETTINGS).no_gain is None


def test_a_mode_that_waits_for_each_page_moves_the_crossing_out() -> None:
    auto = shipping("auto", 2048, model(8000), 200, WAN, SETTINGS)
    sequential = shipping("sequential", 2048, model(8000), 200, WAN, SETTINGS)
    assert auto.from_tokens is not None and sequential.from_tokens is not None
    assert sequential.shipped_s > auto.shipped_s
    assert sequential.from_tokens >= auto.from_tokens


@pytest.mark.parametrize("decode", [600.0, 1500.0])
def test_it_loses_just_below_and_wins_from_there_on(decode: float) -> None:
    fast = model(2000)
    first = shipping("auto", 2048, fast, decode, WAN, SETTINGS).from_tokens
    assert first is not None and first > 16
    for length in (first - 16, first, 2 * first, 8192):
        result = shipping("auto", length, fast, decode, WAN, SETTINGS)
        assert (result.shipped_s < result.local_s) == (length >= first), length
