"""The arms by name: every transfer mode, and what the modes are compared with.

``raw_tcp`` is measured twice, over one and over four connections; the better of the two is the
yardstick. ``nixl`` runs in processes of its own (``pdlab.transfer.nixl``).
"""

from collections.abc import Iterable

from kvtransfer.limits import MODES
from pdcore.errors import ConfigError
from pdlab.transfer.arm import Arm
from pdlab.transfer.kv_arm import kv_arm
from pdlab.transfer.raw_grpc import raw_grpc_arm
from pdlab.transfer.raw_tcp import raw_tcp_arm

NIXL = "nixl"
RAW_TCP = "raw_tcp"
RAW_TCP_ARMS = {"raw_tcp_1": 1, "raw_tcp_4": 4}  # connections

ARMS: dict[str, Arm] = {
    **{mode: kv_arm(mode) for mode in MODES},
    **{name: raw_tcp_arm(number) for name, number in RAW_TCP_ARMS.items()},
    "raw_grpc": raw_grpc_arm(),
}

NAMES = (*ARMS, RAW_TCP, NIXL)


def expanded(names: Iterable[str]) -> tuple[str, ...]:
    """Arms to measure, each once: ``raw_tcp`` becomes its two. Raises ConfigError."""
    arms: list[str] = []
    for name in names:
        if name not in NAMES:
            raise ConfigError(f"unknown arm {name!r}; known: {', '.join(NAMES)}")
        arms += RAW_TCP_ARMS if name == RAW_TCP else (name,)
    if not arms:
        raise ConfigError(f"no arms; known: {', '.join(NAMES)}")
    return tuple(dict.fromkeys(arms))
