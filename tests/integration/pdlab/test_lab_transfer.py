"""``pdspan lab transfer``: over an emulated link, to a record; and one line for each mistake."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pdlab.record_files import read_transfer


def lab_transfer(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pdspan", "lab", "transfer", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.tun
def test_two_cells_over_a_link(tmp_path: Path) -> None:
    """Correctness only: what arrived is what was sent, in every arm, at both distances."""
    path = tmp_path / "record.json"
    options = ("--rtt", "0,20ms", "--rate", "500mbit", "--page", "64KiB", "--bytes", "8MiB")
    arms = ("--arms", "sequential,auto,raw_tcp", "--repetitions", "2", "--limit", "60s")
    result = lab_transfer(*options, *arms, "--json", str(path))
    record = read_transfer(path)
    assert result.returncode == 0, result.stderr
    first, *between, last = result.stderr.splitlines()
    assert (first, last) == ("transfers ...", "transfers: done")
    # On a slow machine it takes longer than the time between two lines.
    assert all(re.fullmatch(r"transfers: \d+ %", line) for line in between)
    assert [link.kind for link in record.link] == ["tun", "tun"]
    assert record.link[1].rtt_min_s is not None and record.link[1].rtt_min_s >= 0.02
    assert len(record.cells) == 8
    for cell in record.cells:
        assert cell.verified and len(cell.goodput_bps) == 2 and not cell.moved_bytes
        assert cell.ratio_to_raw_tcp is not None and cell.predicted_bps is not None
        assert cell.cpu_s_per_gb is not None and cell.rss_growth_bytes is not None
    assert len({cell.digest for cell in record.cells}) == 1
    for cell in record.cells:
        if cell.arm in ("sequential", "auto"):
            assert cell.verdict and cell.shares and cell.frame_bytes
    assert "sequential" in result.stdout and "of raw_tcp" in result.stdout


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--arms", "autp"), "unknown arm 'autp'; known: sequential_layer, sequential"),
        (
            ("--page", "2MiB", "--bytes", "1MiB"),
            "2 MiB does not fit in a payload of 1 MiB",
        ),
        (("--page", "10B"), "a page of 10 bytes: expected a multiple of 4"),
        (("--rtt", "50"), "'50' has no unit"),
        (("--set", "transfer.windo_bytes=1"), "unknown key 'windo_bytes'; did you mean"),
        (("--link", "cable"), "--link is 'cable'; one of tun"),
        (("--arms", "nixl", "--link", "relay"), "nixl chooses its own ports"),
        (("--limit", "0s"), "a limit of 0 s: more than 0"),
    ],
)
def test_a_mistake_is_one_line(options: tuple[str, ...], problem: str) -> None:
    result = lab_transfer(*options)
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if "error" in line]
    assert problem in line and "Traceback" not in result.stderr


def test_a_full_disk_is_one_line_after_the_table() -> None:
    options = ("--link", "loopback", "--bytes", "1MiB", "--arms", "auto", "--repetitions", "1")
    result = lab_transfer(*options, "--json", "/dev/full")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("pdspan: error: /dev/full: cannot write")
    assert "auto" in result.stdout
