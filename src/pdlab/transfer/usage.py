"""What this process has used: CPU seconds of all its threads, and resident memory."""

import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): VmHWM starts again from VmRSS


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def rss_bytes() -> int:
    return _status_bytes("VmRSS")


def peak_rss_bytes() -> int:
    """The most since ``reset_peak_rss``."""
    return _status_bytes("VmHWM")


def reset_peak_rss() -> None:
    _CLEAR_REFS.write_text(_RESET_PEAK)


def _status_bytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise AssertionError(f"{_STATUS} has no {field}")
