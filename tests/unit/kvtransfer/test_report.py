"""What is told of a transfer: its shape for the model, and a warning when it was slow."""

import json
import logging
import pathlib

import pytest

from costed_path import CostedTransfer
from kvtransfer.path_model import Path, Step
from kvtransfer.report import PairPath, log_report, report_of, shape_of
from kvtransfer.send_record import FrameTimes
from kvtransfer.trace import tracing
from page_memory import TINY
from pdcore.generation import TransferId
from pdcore.settings import TransferSettings
from pdwire.v1.generation_pb2 import TransferReport

WORLD = Path(rtt_s=0.1, link_bytes_per_s=1e6, frame_cost_s=1e-4)
CHUNKS = (0.0,) * 4 + (1.0,) * 3 + (2.0,)  # eight pages in three steps


def transfer(mode: str, window_bytes: int = 10 * TINY.page_bytes) -> CostedTransfer:
    settings = TransferSettings(frame_bytes=2 * TINY.page_bytes, window_bytes=window_bytes)
    moved = CostedTransfer(mode, settings, TINY, CHUNKS, WORLD)
    moved.run()
    return moved


def test_a_mode_that_waits_for_prefill_has_everything_at_once() -> None:
    shape = shape_of(transfer("coalesced").queue)
    assert shape.steps == (Step(0.0, 8 * TINY.page_bytes),)
    assert shape.handoff_s == 0.0
    assert shape.window_bytes == 10 * TINY.page_bytes


def test_one_that_does_not_has_the_steps_of_prefill() -> None:
    shape = shape_of(transfer("pipelined").queue)
    pages = [(step.at_s, step.nbytes // TINY.page_bytes) for step in shape.steps]
    assert pages == [(0.0, 4), (1.0, 3), (2.0, 1)]
    assert shape.handoff_s == 2.0


def test_buffers_of_the_kernel_bound_a_window() -> None:
    moved = transfer("windowed")
    assert shape_of(moved.queue, tcp_window_bytes=1000).window_bytes == 1000
    assert shape_of(transfer("sequential").queue, tcp_window_bytes=1000).window_bytes == 0


def test_what_was_exposed_is_counted_from_the_last_page() -> None:
    moved = transfer("pipelined")
    pair = PairPath(moved.path.rtt_s, moved.path.rate_bytes_per_s, warmup_bytes=7)
    report = report_of(moved.queue, "pipelined", pair, moved.committed_s)
    assert report.exposed_s == pytest.approx(moved.committed_s - 2.0)
    assert report.duration_s == pytest.approx(moved.committed_s)
    assert report.verdict == "compute_bound"
    assert report.warmup_bytes == 7


def test_what_was_not_seen_is_null_in_the_trace(tmp_path: pathlib.Path) -> None:
    """Infinity is no JSON."""
    file = tmp_path / "trace.jsonl"
    with tracing(str(file)):
        moved = transfer("pipelined")
        moved.queue.record.write = moved.queue.record.first = FrameTimes()
        report_of(moved.queue, "pipelined", PairPath(None, None), moved.committed_s)
    verdict = json.loads(file.read_text().splitlines()[-1])
    assert verdict["event"] == "verdict"
    assert verdict["least_write_s"] is verdict["first_ack_s"] is None


def test_a_verdict_that_fails_leaves_the_committed_transfer_its_report(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moved = transfer("pipelined")
    monkeypatch.setattr("kvtransfer.report.judge", lambda *_: 1 // 0)
    report = report_of(moved.queue, "pipelined", PairPath(None, None), moved.committed_s)
    assert report.verdict == report.verdict_text == "unknown"
    assert (report.mode, report.page_bytes) == ("pipelined", 8 * TINY.page_bytes)
    assert report.duration_s == pytest.approx(moved.committed_s)
    (logged,) = caplog.records
    assert "ZeroDivisionError" in str(logged.exc_text)


@pytest.mark.parametrize(
    ("duration_s", "auto_s", "is_slow"),
    [(6.5, 0.4, True), (0.5, 0.4, False), (0.06, 0.01, False), (1.7, 1.0, False)],
)
def test_slow_is_much_slower_than_auto(
    duration_s: float, auto_s: float, is_slow: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="kvtransfer.report")
    report = TransferReport(
        mode="bulk", duration_s=duration_s, auto_s=auto_s, verdict_text="rtt_bound: because"
    )
    log_report(report, TransferId("t"), "decode-0", slow_s=0.25)
    (logged,) = caplog.records
    assert (logged.levelno == logging.WARNING) == is_slow
    prefix = "slow transfer" if is_slow else "transfer"
    assert logged.getMessage() == f"{prefix} to decode-0 by bulk, rtt_bound: because"
