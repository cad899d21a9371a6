"""What this machine's kernel does with every TCP connection; None where it does not say."""

from pathlib import Path

_SETTINGS = Path("/proc/sys/net/ipv4")


def congestion_control() -> str | None:
    return _read("tcp_congestion_control")


def slow_start_after_idle() -> bool | None:
    text = _read("tcp_slow_start_after_idle")
    return None if text is None else text != "0"


def _read(name: str) -> str | None:
    try:
        return (_SETTINGS / name).read_text().strip()
    except OSError:
        return None
