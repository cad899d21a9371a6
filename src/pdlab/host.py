"""The machine and the code that an experiment ran on, as every record states them.

Nothing here identifies the machine: no host name, no address, no path. A commit is given only when
this very file is tracked by the repository that it lies in; ``-dirty`` says that files under
``src`` or ``proto`` differ from it.
"""

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pdcore.version import __version__

PACKAGES = ("grpcio", "protobuf", "uvloop", "xxhash", "numpy", "torch")


@dataclass(frozen=True, slots=True)
class HostRecord:
    cpu: str
    num_cores: int  # that this process may use
    memory_bytes: int
    kernel: str
    congestion: str  # the kernel's default congestion control
    load_1m: float  # load average when the experiment began: was the machine quiet?
    versions: Mapping[str, str]

    def __str__(self) -> str:
        memory = f"{self.memory_bytes / 2**30:.0f} GiB"
        return f"{self.cpu}, {self.num_cores} cores, {memory}, Linux {self.kernel}"


def describe_host() -> HostRecord:
    return HostRecord(
        cpu=_cpu_name(Path("/proc/cpuinfo")),
        num_cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        congestion=_text_of(Path("/proc/sys/net/ipv4/tcp_congestion_control")),
        load_1m=round(os.getloadavg()[0], 2),
        versions={"python": platform.python_version(), "pdspan": __version__, **_installed()},
    )


def describe_commit(directory: Path = Path(__file__).parent) -> str:
    """The commit of the code in ``directory``, with ``-dirty``; "unknown" outside a repository."""
    tracked = _git(directory, "ls-files", "--error-unmatch", Path(__file__).name)
    root = _git(directory, "rev-parse", "--show-toplevel")
    commit = _git(directory, "rev-parse", "HEAD")
    if not tracked or not root or not commit:
        return "unknown"
    changed = _git(Path(root), "status", "--porcelain", "--", "src", "proto")
    return f"{commit}-dirty" if changed else commit


def _git(directory: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(directory), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_name(cpuinfo: Path) -> str:
    names = [
        line.partition(":")[2].strip()
        for line in _text_of(cpuinfo).splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.machine()


def _text_of(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return "unknown"


def _installed() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
