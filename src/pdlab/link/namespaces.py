"""Network namespaces by name: made, configured, removed with everything that runs in them.

A thin layer over the ``ip`` command. Only namespaces that the caller names are touched. Failures
are ConfigErrors with what ``ip`` said: they are about this machine, not about the program.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pdcore.errors import ConfigError

NAMES_DIR = Path("/var/run/netns")  # where ``ip netns`` keeps them


def add_namespace(name: str) -> None:
    """A new namespace with its loopback up and without IPv6."""
    ip("netns", "add", name)
    write_sysctls(
        name, {"net.ipv6.conf.all.disable_ipv6": "1", "net.ipv6.conf.default.disable_ipv6": "1"}
    )
    ip("-n", name, "link", "set", "lo", "up")


def remove_namespace(name: str) -> None:
    """End what runs in it and remove it; nothing happens when it is not there."""
    if name not in namespace_names():
        return
    for pid in ip("netns", "pids", name).split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    with suppress(ConfigError):  # another process may have been quicker
        ip("netns", "delete", name)


def namespace_names() -> set[str]:
    return {path.name for path in NAMES_DIR.glob("*")}


def inside(name: str, *command: str) -> list[str]:
    """The command that runs ``command`` in a namespace."""
    return ["ip", "netns", "exec", name, *command]


def write_sysctls(namespace: str, values: Mapping[str, str]) -> None:
    """Set kernel parameters of one namespace, such as ``net.ipv4.tcp_rmem``."""
    script = 'while [ $# -gt 0 ]; do echo "$2" > "/proc/sys/$1" || exit 1; shift 2; done'
    words = [word for key, value in values.items() for word in (key.replace(".", "/"), value)]
    _run(inside(namespace, "sh", "-c", script, "sh", *words))


def read_sysctl(namespace: str, key: str) -> str:
    return _run(inside(namespace, "cat", f"/proc/sys/{key.replace('.', '/')}")).strip()


def ip(*arguments: str) -> str:
    return _run(["ip", *arguments])


def tc(*arguments: str) -> str:
    return _run(["tc", *arguments])


def _run(command: Sequence[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ConfigError(f"an emulated link needs the command {command[0]!r} (iproute2)") from None
    if result.returncode != 0:
        said = " ".join(result.stderr.split()) or f"status {result.returncode}"
        raise ConfigError(f"{' '.join(command[:4])} ...: {said}")
    return result.stdout
