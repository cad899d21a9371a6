"""The largest buffers that this kernel gives to one TCP connection: the last of three numbers each.

Read from the network namespace that the process is in. None where the kernel does not tell.
"""

from pathlib import Path

_TCP_SETTINGS = Path("/proc/sys/net/ipv4")


def max_send_buffer_bytes() -> int | None:
    return _largest("tcp_wmem")


def max_receive_buffer_bytes() -> int | None:
    return _largest("tcp_rmem")


def _largest(name: str) -> int | None:
    try:
        return int((_TCP_SETTINGS / name).read_text().split()[-1])
    except (OSError, ValueError, IndexError):
        return None
