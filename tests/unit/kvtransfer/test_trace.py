"""The trace: JSON lines in a file of its own, nothing while it is off."""

import io
import json
import logging
from pathlib import Path

import pytest

from kvtransfer.trace import trace_of, tracing
from pdcore.errors import ConfigError


def test_off_is_none() -> None:
    assert trace_of("t") is None
    with tracing(None):
        assert trace_of("t") is None


def test_events_are_lines_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    for number in (1, 2):  # appends
        with tracing(str(file)):
            trace = trace_of(f"t{number}")
            assert trace is not None
            trace.event("sent", 1.25, bytes=number)
    assert trace_of("t3") is None
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {"time_s": 1.25, "transfer": "t1", "event": "sent", "bytes": 1},
        {"time_s": 1.25, "transfer": "t2", "event": "sent", "bytes": 2},
    ]


def test_it_never_reaches_the_log_of_the_node(tmp_path: Path) -> None:
    node_log = io.StringIO()
    handler = logging.StreamHandler(node_log)
    logging.getLogger().addHandler(handler)
    try:
        with tracing(str(tmp_path / "trace.jsonl")):
            trace = trace_of("t")
            assert trace is not None
            trace.event("sent", 1.0)
    finally:
        logging.getLogger().removeHandler(handler)
    assert node_log.getvalue() == ""


def test_two_files_at_once(tmp_path: Path) -> None:
    with tracing(str(tmp_path / "one")):
        with tracing(str(tmp_path / "other")):
            pass
        assert trace_of("t") is not None
    assert trace_of("t") is None


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "no" / "trace.jsonl")
    with pytest.raises(ConfigError, match=r"transfer\.trace: cannot write .*no/trace"):  # noqa: SIM117
        with tracing(path):
            pass


def test_a_full_disk_ends_the_trace_and_nothing_else(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with tracing("/dev/full"):
        trace = trace_of("t")
        assert trace is not None
        for number in range(3):
            trace.event("sent", 1.0, bytes=number)
        assert trace_of("u") is None
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage() == (
        "transfer.trace: cannot write /dev/full any more: No space left on device"
    )
    assert capsys.readouterr().err == ""
