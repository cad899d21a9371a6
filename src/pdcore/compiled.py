"""Programs and libraries of ours that are compiled on the machine that runs them.

Once for each version of source and options; the result is kept in the cache. Several processes may
come to it at once: each compiles for itself, and whichever ends last leaves the same file.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pdcore.cache import cache_dir
from pdcore.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Recipe:
    """``compilers``: the first that is there is used. ``headers`` are only watched for changes.
    ``machine``: what of this machine the result depends on. ``purpose`` begins an error message.
    """

    name: str  # below the cache
    sources: Sequence[Path]
    compilers: Sequence[str]
    options: Sequence[str]
    libraries: Sequence[str]
    purpose: str
    language: str = "C"
    headers: Sequence[Path] = ()
    machine: str = ""


def compiled(recipe: Recipe) -> Path:
    """Compile it unless that is done. ConfigError without a compiler, when it fails, or where the
    cache cannot be written."""
    result = cache_dir() / f"{recipe.name}-{_fingerprint(recipe)}"
    try:
        if not result.exists():
            result.parent.mkdir(parents=True, exist_ok=True)
            _compile(recipe, result)
    except OSError as error:
        raise ConfigError(
            f"{recipe.purpose}: cannot write {result.parent}: {error.strerror}; set PDSPAN_CACHE"
        ) from None
    return result


def _fingerprint(recipe: Recipe) -> str:
    digest = hashlib.sha256(recipe.machine.encode())
    for path in sorted([*recipe.sources, *recipe.headers]):
        digest.update(path.name.encode() + path.read_bytes())
    digest.update("\0".join([*recipe.options, *recipe.libraries]).encode())
    return digest.hexdigest()[:16]


def _compile(recipe: Recipe, target: Path) -> None:
    compiler = next(filter(None, map(shutil.which, recipe.compilers)), None)
    if compiler is None:
        raise ConfigError(
            f"{recipe.purpose} needs a {recipe.language} compiler ({recipe.compilers[0]}) once,"
            " and there is none in PATH"
        )
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        new = Path(directory, "new")
        sources = map(str, recipe.sources)
        command = [compiler, *recipe.options, *sources, "-o", str(new), *recipe.libraries]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise ConfigError(f"{recipe.purpose}: {compiler} failed: {_error_of(result)}")
        os.replace(new, target)  # noqa: PTH105  another process may have been quicker


def _error_of(result: subprocess.CompletedProcess[str]) -> str:
    lines = result.stderr.strip().splitlines() or [f"status {result.returncode}"]
    return next((line for line in lines if "error" in line), lines[0])
