"""Cells of transfer records for tests: ordinary ones, with what a test is about set by name."""

from dataclasses import replace
from typing import Any

from pdlab.records import Cell

KIB, MIB, GBIT = 2**10, 2**20, 1e9

_ORDINARY = Cell(
    arm="auto",
    rtt_s=0.05,
    rate_bps=GBIT,
    page_bytes=64 * KIB,
    payload_bytes=256 * MIB,
    stripes=1,
    window_bytes=12 * MIB,
    frame_bytes=2 * MIB,
    goodput_bps=(),
    median_goodput_bps=0.0,
    ratio_to_raw_tcp=None,
    predicted_bps=None,
    verdict=None,
    shares=None,
    cpu_s_per_gb=2.0,
    verified=True,
    link=0,
    congestion="bbr",
)


def cell(arm: str, gbit_per_s: float, **fields: Any) -> Cell:
    """One repetition at that goodput; 0: it was given up."""
    bps = gbit_per_s * GBIT
    repetitions = (bps,) if bps else ()
    return replace(_ORDINARY, arm=arm, goodput_bps=repetitions, median_goodput_bps=bps, **fields)
