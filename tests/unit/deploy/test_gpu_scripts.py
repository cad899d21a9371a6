"""How the GPU scripts take their arguments, and which wheels are found missing."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[3] / "deploy"


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [DEPLOY / script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", ["gpu_check.sh", "gpu_wheels.sh"])
def test_help_goes_to_stdout(script: str) -> None:
    result = run(script, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith(f"usage: {script}")


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("gpu_check.sh", ("--gpu",), "unknown argument '--gpu'"),
        ("gpu_check.sh", ("--out",), "--out needs a directory"),
        ("gpu_check.sh", ("--model", "nowhere"), "nowhere has no config.json"),
        ("gpu_wheels.sh", ("here",), "unknown argument 'here'"),
        ("gpu_wheels.sh", ("--python",), "--python needs a version"),
        ("gpu_wheels.sh", ("--python", "twelve"), "--python is 'twelve'"),
    ],
)
def test_wrong_arguments_end_with_status_2(
    script: str, arguments: tuple[str, ...], message: str
) -> None:
    result = run(script, *arguments)
    assert result.returncode == 2
    assert message in result.stderr


def test_steps_of_the_check_fit_into_six_minutes() -> None:
    text = (DEPLOY / "gpu_check.sh").read_text()
    limits = [int(limit) for limit in re.findall(r"step \w+ (\d+) \w+$", text, re.MULTILINE)]
    assert len(limits) == 5
    assert sum(limits) < 360


def test_wheels_that_are_missing_or_newer_are_needed(tmp_path: Path) -> None:
    installed = importlib.metadata.version("pytest")
    for name in (f"pytest-{installed}", "pytest_timeout-99.0", "no_such_thing-1.0", "uvloop-0.1"):
        (tmp_path / f"{name}-py3-none-any.whl").touch()
    assert missing_wheels(tmp_path) == ["no-such-thing==1.0", "pytest-timeout==99.0"]


def test_wheels_for_another_python_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "no_such_thing-1.0-cp27-cp27m-win32.whl").touch()
    assert missing_wheels(tmp_path) == []


def test_no_wheels_are_none_needed(tmp_path: Path) -> None:
    assert missing_wheels(tmp_path / "nowhere") == []


def missing_wheels(directory: Path) -> list[str]:
    command = [sys.executable, DEPLOY / "gpu/missing_wheels.py", directory]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
