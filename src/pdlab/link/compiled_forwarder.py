"""The forwarding process's program: compiled once per version of its source, kept in the cache."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from pdcore.cache import cache_dir
from pdcore.errors import ConfigError

SOURCE_DIR = Path(__file__).with_name("forwarder")


def compiled_forwarder() -> Path:
    """Compile it unless that is done. ConfigError without a C compiler, or when it fails."""
    program = cache_dir() / "link" / f"forwarder-{_source_hash()}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        _compile(program)
    return program


def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCE_DIR.glob("*.[ch]")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(program: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise ConfigError(
            "an emulated link needs a C compiler (cc) once, and there is none in PATH"
        )
    with tempfile.TemporaryDirectory(dir=program.parent) as directory:
        new = Path(directory, "forwarder")
        sources = map(str, sorted(SOURCE_DIR.glob("*.c")))
        command = [compiler, "-O2", "-pthread", *sources, "-o", str(new), "-lm"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise ConfigError(
                f"{compiler} cannot compile the link's forwarder: {_error_of(result)}"
            )
        os.replace(new, program)  # noqa: PTH105  another process may have been quicker


def _error_of(result: subprocess.CompletedProcess[str]) -> str:
    lines = result.stderr.strip().splitlines() or [f"status {result.returncode}"]
    return next((line for line in lines if "error" in line), lines[0])
