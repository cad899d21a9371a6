"""What ``pdspan lab transfer`` prints when it is done."""

from dataclasses import replace

import pytest

from pdlab.transfer.table import least_moved_bytes, print_table
from sample_records import CELL, transfer_record

PAGE = CELL.page_bytes
WHOLE = replace(CELL, payload_bytes=11 * PAGE)
FOOTNOTE = "* cut short by its time limit"


def test_a_cell_that_was_cut_short_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    cut = replace(WHOLE, arm="sequential", moved_bytes=(2 * PAGE, PAGE))
    print_table(transfer_record(WHOLE, cut))
    _, whole, marked, *footnote = capsys.readouterr().out.splitlines()
    assert "3.867 MiB " in whole and "*" not in whole
    assert "3.867 MiB*" in marked and "bandwidth_bound, 1 of 11 pages" in marked
    assert "".join(footnote).startswith(FOOTNOTE)


def test_without_a_cut_there_is_no_footnote(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(transfer_record(WHOLE))
    assert FOOTNOTE not in capsys.readouterr().out


def test_without_a_cut_every_whole_page_was_moved() -> None:
    assert least_moved_bytes(replace(WHOLE, payload_bytes=3 * PAGE + 1)) == 3 * PAGE
    assert least_moved_bytes(replace(WHOLE, moved_bytes=(2 * PAGE, PAGE))) == PAGE
