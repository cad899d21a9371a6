"""How this kernel treats every TCP connection, as far as a sender must know.

Read from the network namespace that the process is in. None where the kernel does not tell.
"""

from pathlib import Path

_SETTINGS = Path("/proc/sys/net/ipv4")


def max_send_buffer_bytes() -> int | None:
    """Of one connection."""
    return _largest("tcp_wmem")


def max_receive_buffer_bytes() -> int | None:
    """Of one connection."""
    return _largest("tcp_rmem")


def congestion_control() -> str | None:
    return _read("tcp_congestion_control")


def backs_off_on_loss() -> bool:
    """Whether a lost packet alone makes a connection send less: as all but bbr do."""
    name = congestion_control()
    return name is None or not name.startswith("bbr")


def slow_start_after_idle() -> bool | None:
    text = _read("tcp_slow_start_after_idle")
    return None if text is None else text != "0"


def _largest(name: str) -> int | None:
    text = _read(name)
    return int(text.split()[-1]) if text else None


def _read(name: str) -> str | None:
    try:
        return (_SETTINGS / name).read_text().strip()
    except OSError:
        return None
