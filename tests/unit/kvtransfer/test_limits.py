"""Modes are rows: what each one says, and how the rows are filled in for a layout."""

from dataclasses import replace

import pytest

from kvtransfer.limits import MAX_PAYLOAD_BYTES, MODES, FrameShape, Starts, limits_for
from page_memory import TINY
from pdcore.errors import ConfigError, InvalidRequest
from pdcore.kv_layout import KvLayout
from pdcore.rpc import MAX_MESSAGE_BYTES
from pdcore.settings import TransferSettings

SETTINGS = TransferSettings(stripes=4)
SMOLLM2 = KvLayout("smollm2", 30, 3, 64, 16, "bfloat16")  # 360 KiB a page
LLAMA_8B = KvLayout("llama-3-8b", 32, 8, 128, 16, "bfloat16")  # 2 MiB a page
HUGE = KvLayout("huge", 80, 8, 128, 128, "bfloat16")  # 40 MiB a page, 512 KiB a layer

ROWS = {
    # mode: (starts, windowed, stripes, frames of SmolLM2, frames of an 8B Llama), pages x layers
    "sequential_layer": (Starts.AFTER_PREFILL, False, 1, (1, 1), (1, 1)),
    "sequential": (Starts.AFTER_PREFILL, False, 1, (1, 30), (1, 32)),
    "bulk": (Starts.AFTER_PREFILL, False, 1, (5, 30), (1, 32)),
    "windowed": (Starts.AFTER_PREFILL, True, 1, (1, 30), (1, 32)),
    "coalesced": (Starts.AFTER_PREFILL, True, 1, (5, 30), (1, 32)),
    "pipelined": (Starts.WHILE_PREFILL_RUNS, True, 1, (5, 30), (1, 32)),
    "striped": (Starts.WHILE_PREFILL_RUNS, True, 4, (5, 30), (1, 32)),
    "auto": (Starts.WHILE_PREFILL_RUNS, True, 8, (11, 30), (2, 32)),
}


@pytest.mark.parametrize("mode", MODES)
def test_row(mode: str) -> None:
    starts, is_windowed, num_stripes, small, large = ROWS[mode]
    limits = limits_for(mode, SETTINGS, SMOLLM2)
    assert limits.mode == mode
    assert limits.starts is starts
    assert limits.window_bytes == (SETTINGS.window_bytes if is_windowed else None)
    assert limits.num_stripes == num_stripes
    assert limits.frame == FrameShape(*small)
    limits = limits_for(mode, SETTINGS, LLAMA_8B)
    assert limits.frame == FrameShape(*large)


@pytest.mark.parametrize("mode", MODES)
def test_a_page_beyond_a_message_is_split_by_layers(mode: str) -> None:
    limits = limits_for(mode, SETTINGS, HUGE)
    layers = {"sequential_layer": 1, "sequential": 32, "windowed": 32, "auto": 8}.get(mode, 4)
    assert limits.frame == FrameShape(1, layers)
    assert layers * HUGE.layer_bytes <= MAX_PAYLOAD_BYTES


@pytest.mark.parametrize(("mode", "most_bytes"), [("coalesced", 2 * 2**20), ("auto", 4 * 2**20)])
def test_coalescing_frames_are_one_to_four_mebibytes(mode: str, most_bytes: int) -> None:
    for layout in (SMOLLM2, LLAMA_8B, HUGE):
        limits = limits_for(mode, SETTINGS, layout)
        frame_bytes = limits.frame.pages * limits.frame.layers * layout.layer_bytes
        assert most_bytes / 2 <= frame_bytes <= most_bytes


def test_a_payload_leaves_room_in_a_message() -> None:
    assert MAX_PAYLOAD_BYTES <= MAX_MESSAGE_BYTES // 2


def test_unknown_mode_names_the_known_ones() -> None:
    with pytest.raises(
        InvalidRequest, match="'fast'; known: sequential_layer, sequential, bulk"
    ) as e:
        limits_for("fast", SETTINGS, TINY)
    assert e.value.param == "kv_transfer_params.mode"


def test_a_layer_beyond_a_message_is_refused() -> None:
    layout = replace(HUGE, page_tokens=128 * 64)
    with pytest.raises(ConfigError, match=r"lower engine.page_tokens \(now 8192\)"):
        limits_for("auto", SETTINGS, layout)
