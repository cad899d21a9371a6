"""Progress without a terminal: a line when a task begins and one when it is done."""

import pytest

from pdspan.progress import BarDisplay, LineDisplay, open_progress


def test_lines_begin_and_end(capsys: pytest.CaptureFixture[str]) -> None:
    with LineDisplay() as display:
        for fraction in (0.0, 0.5, 1.0, 1.0):
            display.report("download", fraction)
        display.report("convert", 0.0)
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["download ...", "download: done", "convert ..."]
    assert captured.out == ""


def test_bars_take_any_order_and_late_reports(capsys: pytest.CaptureFixture[str]) -> None:
    with BarDisplay() as display:
        for task, fraction in (("a", 0.5), ("b", 0.0), ("a", 1.0), ("b", 1.0)):
            display.report(task, fraction)
    display.report("a", 1.0)
    captured = capsys.readouterr()
    assert "a" in captured.err
    assert "100%" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(("tty", "kind"), [(True, BarDisplay), (False, LineDisplay)])
def test_a_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch, tty: bool, kind: type) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: tty)
    assert type(open_progress()) is kind
