"""NIXL's own environment: made on demand in the cache, with the packages that its ends import.

NIXL declares torch as a dependency, but only imports it where tensors are passed; without it the
environment takes 70 MB to fetch instead of gigabytes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pdlab
from pdcore.cache import cache_dir
from pdcore.errors import ConfigError
from pdlab.transfer.ends import Program

NIXL = "nixl-cu12==1.5.1"
PACKAGES = (NIXL, "numpy", "xxhash")
INSTALL_S = 600.0
_COMPLETE = "complete"  # stands in the environment once everything is installed


def nixl_program() -> Program:
    """How NIXL's ends are started. Installs them first, unless that is done. Raises ConfigError."""
    python = _environment()
    command = (str(python), "-m", "pdlab.transfer.nixl_end")
    ours = str(Path(pdlab.__path__[0]).parent)
    return Program((*command, "sender"), (*command, "receiver"), {"PYTHONPATH": ours})


def is_installed() -> bool:
    return (_directory() / _COMPLETE).exists()


def _environment() -> Path:
    directory = _directory()
    python = directory / "bin" / "python"
    if not is_installed():
        _run("make an environment for NIXL", sys.executable, "-m", "venv", "--clear", directory)
        _run("install NIXL", python, "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES)
        (directory / _COMPLETE).touch()
    return python


def _directory() -> Path:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cache_dir() / "nixl" / f"{NIXL.replace('==', '-')}-python{version}"


def _run(what: str, *command: str | Path) -> None:
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"cannot {what}: it takes more than {INSTALL_S:g} s") from None
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ConfigError(f"cannot {what}: {last}")
