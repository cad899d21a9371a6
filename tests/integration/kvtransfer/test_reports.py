"""What a transfer over real sockets says of itself: verdict, model, trace."""

import json
from collections import Counter
from pathlib import Path

import pytest

from kvtransfer.limits import MODES
from kvtransfer.trace import tracing
from kvtransfer.verdict import Verdict
from pdcore.errors import UnknownTransfer
from wired_pair import LAYOUT, NUM_PAGES, transfer, wired


@pytest.mark.parametrize("mode", MODES)
async def test_every_mode_has_a_verdict(mode: str) -> None:
    async with wired() as wire:
        report = await transfer(wire, "t", mode)
    assert report.verdict in set(Verdict)
    assert report.verdict_text.startswith(f"{report.verdict}: ")
    assert 0 < report.exposed_s <= report.duration_s
    assert report.modelled_s > 0 and report.auto_s > 0
    assert report.frame_bytes == pytest.approx(report.wire_bytes / report.frames, abs=1)
    assert (report.window_bytes == 0) == (not MODES[mode].windowed)
    assert report.rate_bytes_per_s >= report.page_bytes / report.duration_s
    assert report.frame_cost_s > 0


async def test_a_pair_that_knows_its_path_tells_it() -> None:
    """On loopback TCP's own round trip is far below a ping's, which crosses two event loops."""
    async with wired() as wire:
        for number in range(3):
            report = await transfer(wire, f"t{number}", "sequential")
        assert wire.pair.path.rtt_s is not None
        assert 0 < report.rtt_s <= wire.pair.path.rtt_s


async def test_a_trace_has_every_frame(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    with tracing(str(file)):
        async with wired() as wire:
            report = await transfer(wire, "t", "coalesced")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    mine = [event for event in events if event["transfer"] == "t"]
    times = [event["time_s"] for event in mine]
    assert times == sorted(times)
    count = Counter(event["event"] for event in mine)
    assert count["sent"] == count["acked"] == report.frames
    assert count["opened"] == count["handoff"] == count["committed"] == count["verdict"] == 1
    sent = [event for event in mine if event["event"] == "sent"]
    assert sum(event["bytes"] for event in sent) == NUM_PAGES * LAYOUT.page_bytes
    assert mine[-1]["text"] == report.verdict_text


async def test_a_trace_says_why_one_failed(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    with tracing(str(file)):
        async with wired() as wire:
            with pytest.raises(UnknownTransfer):
                await wire.sender("t", "bulk").run()
    *_, last = [json.loads(line) for line in file.read_text().splitlines()]
    assert last["event"] == "failed"
    assert last["error"].startswith("UnknownTransfer: ")
