"""The rate of all requests together: over a block's whole time, failures left out."""

import pytest

from pdlab.aggregate_rate import aggregate_bytes_per_s
from pdlab.records import ServingRecord
from pdlab.serving_table import serving_table
from sample_records import LINK, request, serving_header

TIMELINE = {"transfer": {"page_bytes": 30_000_000}}
BLOCK = [
    request("auto", 1, 1.0, scheduled_s=0.0, timeline=TIMELINE),
    request("auto", 1, 1.5, scheduled_s=0.5, timeline=TIMELINE, index=1),
]
FAILED = request("auto", 1, 9.0, status="transfer_error", timeline=TIMELINE, index=2)


def test_it_counts_from_the_first_arrival_to_the_last_first_token() -> None:
    assert aggregate_bytes_per_s(BLOCK) == pytest.approx(60e6 / 2.0)
    assert aggregate_bytes_per_s([request("colocated", 1, 1.0, timeline=None)]) is None


def test_what_failed_counts_neither_in_bytes_nor_in_time() -> None:
    assert aggregate_bytes_per_s([*BLOCK, FAILED]) == pytest.approx(60e6 / 2.0)


def test_of_several_blocks_it_is_the_median() -> None:
    fast = [request("auto", block, 0.5, timeline=TIMELINE) for block in (2, 3)]
    assert aggregate_bytes_per_s([*BLOCK, *fast]) == pytest.approx(60e6)


def test_the_table_of_a_run_leaves_failures_out() -> None:
    record = ServingRecord(serving_header("auto"), (LINK,), (*BLOCK, FAILED), complete=True)
    (_, row) = serving_table(record).splitlines()
    assert row.split()[-2:] == ["30.0", "MB/s"]
    assert "1.25 s" in row  # of 1.0 and 1.5
