"""An environment of its own for software that is compared with ours, made on demand in the cache.

So that none of its packages, of which it demands certain versions, stands beside ours.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pdcore.cache import cache_dir
from pdcore.errors import ConfigError

INSTALL_S = 1200.0
_COMPLETE = "complete"  # stands in the environment once everything is installed


@dataclass(frozen=True, slots=True)
class OwnEnvironment:
    """``packages``: what pip is told, the first one with its version. ``unwanted``: what it would
    install with them and must not stay. ``with_dependencies``: else only ``packages``.
    """

    name: str
    packages: Sequence[str]
    unwanted: Sequence[str] = ()
    with_dependencies: bool = False

    @property
    def is_installed(self) -> bool:
        return (self._directory / _COMPLETE).exists()

    def python(self) -> Path:
        """Its interpreter. Installs everything first, unless that is done. Raises ConfigError."""
        python = self._directory / "bin" / "python"
        if self.is_installed:
            return python
        self._run(
            "make an environment for", sys.executable, "-m", "venv", "--clear", self._directory
        )
        pip = (python, "-m", "pip", "--quiet")
        alone = () if self.with_dependencies else ("--no-deps",)
        self._run("install", *pip, "install", *alone, *self.packages)
        if self.unwanted:
            self._run("install", *pip, "uninstall", "--yes", *self.unwanted)
        (self._directory / _COMPLETE).touch()
        return python

    @property
    def _directory(self) -> Path:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        package = self.packages[0].replace("==", "-")
        return cache_dir() / self.name.lower() / f"{package}-python{version}"

    def _run(self, what: str, *command: str | Path) -> None:
        environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        what = f"cannot {what} {self.name}"
        try:
            result = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=INSTALL_S,
                check=False,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            raise ConfigError(f"{what}: it takes more than {INSTALL_S:g} s") from None
        if result.returncode != 0:
            last = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise ConfigError(f"{what}: {last}")
