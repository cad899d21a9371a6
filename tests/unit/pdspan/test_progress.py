"""Progress without a terminal: a line when a task begins, at tenths of it, and when it is done."""

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


def test_a_long_task_tells_each_tenth_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """2 s for each hundredth: a tenth takes 20 s."""
    now_s = 0.0
    display = LineDisplay(clock=lambda: now_s)
    for hundredths in range(101):
        now_s = 2.0 * hundredths
        display.report("bench", hundredths / 100)
    tenths = [f"bench: {percent} %" for percent in range(10, 100, 10)]
    assert capsys.readouterr().err.splitlines() == ["bench ...", *tenths, "bench: done"]


def test_a_short_task_tells_no_more_than_a_line_in_ten_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """0.25 s for each hundredth; two tasks at once do not hold each other's lines back."""
    now_s = 0.0
    display = LineDisplay(clock=lambda: now_s)
    for hundredths in range(101):
        now_s = 0.25 * hundredths
        display.report("a", hundredths / 100)
        display.report("b", 0.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["a ...", "b ...", "a: 40 %", "a: 80 %", "a: done"]


def test_a_task_that_stands_still_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 0.0
    display = LineDisplay(clock=lambda: now_s)
    for seconds in (0.0, 11.0, 100.0):
        now_s = seconds
        display.report("a", 0.05)
    assert capsys.readouterr().err.splitlines() == ["a ..."]


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
