"""How many bytes may be unacknowledged: fixed, one frame, or as the path holds."""

import pytest

from kvtransfer.limits import limits_for
from kvtransfer.path import NARROW, PathEstimator
from kvtransfer.window import (
    LEAST_WINDOW_BYTES,
    MAX_WINDOW_BYTES,
    FixedWindow,
    PathWindow,
    StopAndWait,
    settled_window_bytes,
    window_for,
)
from page_memory import TINY
from pdcore.settings import TransferSettings

SETTINGS = TransferSettings()
MIB = 2**20


def test_a_mode_has_its_window() -> None:
    path = PathEstimator()
    kinds = {"sequential": StopAndWait, "windowed": FixedWindow, "auto": PathWindow}
    for mode, kind in kinds.items():
        assert isinstance(window_for(limits_for(mode, SETTINGS, TINY), path), kind)
    assert FixedWindow(7).window_bytes() == 7
    assert StopAndWait().window_bytes() == 0


def deliver(path: PathEstimator, frames_per_s: float, seconds: float, start_s: float) -> float:
    """MiB frames, sixteen in flight; says what time it is then."""
    marks = [path.sent(MIB, now=start_s) for _ in range(16)]
    now = start_s
    while now < start_s + seconds:
        now += 1 / frames_per_s
        path.delivered(marks.pop(0), MIB, now=now)
        marks.append(path.sent(MIB, now=now))
    path.withdrawn(16 * MIB, 16)
    return now


def test_it_starts_wide_and_stays_so_until_the_rate_no_longer_grows() -> None:
    path = PathEstimator()
    window = PathWindow(path, 64 * MIB)
    assert window.window_bytes() == 64 * MIB
    path.on_ping(0.1, now=0.0)
    now = deliver(path, 100.0, 0.3, 0.0)
    assert path.target_bytes is not None and path.target_bytes < 30 * MIB
    assert window.window_bytes() == 64 * MIB
    deliver(path, 100.0, 1.0, now)
    assert path.is_settled
    assert window.window_bytes() == path.target_bytes == pytest.approx(20 * MIB, rel=0.05)


def test_it_is_twice_as_wide_where_packets_are_lost() -> None:
    path = PathEstimator()
    path.on_ping(0.1, now=0.0)
    deliver(path, 100.0, 2.0, 0.0)
    target_bytes = path.target_bytes
    path.is_lossy = True
    assert path.target_bytes == target_bytes == pytest.approx(20 * MIB, rel=0.05)
    assert PathWindow(path, 64 * MIB).window_bytes() == pytest.approx(40 * MIB, rel=0.05)


def test_it_is_narrow_while_the_round_trip_is_in_doubt() -> None:
    path = PathEstimator()
    path.on_ping(0.1, now=0.0)
    now = deliver(path, 100.0, 2.0, 0.0)
    path.on_ping(1.0, now=now)
    assert path.is_in_doubt
    held = 0.1 * 100 * MIB
    assert PathWindow(path, 64 * MIB).window_bytes() == pytest.approx(NARROW * held, rel=0.05)


@pytest.mark.parametrize(
    ("rtt_s", "rate", "window_bytes"),
    [
        (0.2, 125e6, 50e6),
        (0.05, 125e6, 12.5e6),
        (0.01, 125e6, 12.5e6),  # a tenth of a second of the rate
        (0.0001, 1e9, 16 * MIB),
        (1.0, 1e9, MAX_WINDOW_BYTES),
        (0.05, 1e6, LEAST_WINDOW_BYTES),
    ],
)
def test_twice_what_the_path_holds_within_bounds(
    rtt_s: float, rate: float, window_bytes: float
) -> None:
    assert settled_window_bytes(rtt_s * rate, rate) == int(window_bytes)
