"""The page says what its records say: met, not met, void, failed."""

import json
from pathlib import Path

import pytest

from pdcore.errors import ConfigError
from pdlab.host import describe_host
from pdlab.record_files import write_transfer
from pdlab.records import Cell, LinkRecord, TransferRecord
from pdlab.transfer.results_page import (
    BARS_RECORD,
    GRID_RECORD,
    PAGE,
    SERVING_BARS,
    update_page,
    write_page,
)
from transfer_cells import cell

LINK = LinkRecord("tun", 0.05, 1e9, 0, 0, None, "large", "bbr", 0.0503, 0.0505, 9.6e8, "")


def page(directory: Path, *cells: Cell) -> str:
    record = TransferRecord("test", "2026-01-01", describe_host(), "c0ffee", (LINK,), cells)
    write_transfer(directory / BARS_RECORD, record)
    write_page(directory)
    return (directory / PAGE).read_text()


def test_bars_met_and_missed(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        cell("auto", 0.5, ratio_to_raw_tcp=0.55, verdict="rtt_bound"),
        cell("raw_tcp", 0.91),
        cell("nixl", 0.5, verified=False, notes=("given up: gone",)),
    )
    assert "c0ffee" in text
    assert "256 MiB, 1 Gbit/s, 0 to 200 ms | >= 0.97 | 0.549 | 0 of 1 | **not met** |" in text
    assert (
        "| `auto` / NIXL over UCX/TCP, large buffers, 50 ms | >= 0.95 | 1.000 | 1 of 1 | met |"
        in text
    )
    assert "stock buffers, 100 ms | >= 3 |  |  | not measured |" in text
    assert "1 Gbit/s, 50 ms, 256 MiB in 64 KiB pages: 0.549" in text
    assert "given up: gone" in text
    assert "## Void" not in text and "## Bars of serving" not in text


def test_void_cells_are_shown_with_their_reason(tmp_path: Path) -> None:
    text = page(tmp_path, cell("auto", 0.5, void="raw_tcp reached 0.5 Gbit/s"))
    assert "## Void" in text and "raw_tcp reached 0.5 Gbit/s" in text


def test_the_bars_of_serving_are_included_where_they_were_measured(tmp_path: Path) -> None:
    path = tmp_path / SERVING_BARS
    path.parent.mkdir()
    row = {"what": "exposed", "value": 1.2, "limit": 1.3, "unit": "RTT", "passed": True}
    bars = {"commit": "c0ffee", "bars": [row | {"low": 1.1, "high": 1.25}]}
    path.write_text(json.dumps(bars))
    text = page(tmp_path, cell("auto", 1))
    assert "| exposed | 1.3 RTT | 1.200 (1.100 to 1.250) | met |" in text
    assert "commit c0ffee" in text
    path.write_text("{}")
    with pytest.raises(ConfigError, match="not the bars of serving"):
        page(tmp_path, cell("auto", 1))


def test_verdicts_come_from_the_grid_where_there_is_one(tmp_path: Path) -> None:
    cells = tuple(
        cell("sequential", gbit, rtt_s=rtt_s, rate_bps=rate, verdict="bandwidth_bound")
        for rtt_s, rate, gbit in (
            (0, 1e9, 0.4),
            (0.05, 1e9, 0.01),
            (0, None, 0.5),
            (0.05, None, 0.01),
        )
    )
    record = TransferRecord("grid", "2026-01-01", describe_host(), "f00d", (LINK,), cells)
    write_transfer(tmp_path / GRID_RECORD, record)
    text = page(tmp_path, cell("auto", 0.5))
    assert "cells of the whole grid | >= 0.98 | " in text
    assert "f00d" in text and "sequential, 1 Gbit/s, 50 ms" in text


def test_new_bars_of_serving_are_shown_on_the_page_beside_them(tmp_path: Path) -> None:
    text = page(tmp_path, cell("auto", 0.9))
    (tmp_path / PAGE).write_text("old")
    update_page(tmp_path / "elsewhere")
    assert (tmp_path / PAGE).read_text() == "old"
    update_page(tmp_path / SERVING_BARS.parent)
    assert (tmp_path / PAGE).read_text() == text


def test_the_published_page_is_what_the_published_records_say(tmp_path: Path) -> None:
    results = Path(__file__).parents[4] / "docs" / "results"
    (tmp_path / SERVING_BARS).parent.mkdir()
    for name in (BARS_RECORD, GRID_RECORD, SERVING_BARS):
        (tmp_path / name).write_bytes((results / name).read_bytes())
    write_page(tmp_path)
    assert (tmp_path / PAGE).read_text() == (results / PAGE).read_text()
