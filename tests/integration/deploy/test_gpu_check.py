"""deploy/gpu_check.sh on the CPU: the script itself, since no test machine has a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "deploy/gpu_check.sh"


def gpu_check(out: Path, python: str | Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [SCRIPT, "--out", out, "--wheels", out / "no-wheels", *options]
    environment = {**os.environ, "PYTHON": str(python)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env=environment
    )


def test_all_steps_pass_on_the_cpu(tmp_path: Path) -> None:
    result = gpu_check(tmp_path, sys.executable, "--cpu")
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads((tmp_path / "result.json").read_text())
    assert report["passed"]
    assert report["device"] == "cpu"
    steps = {step["name"]: step["outcome"] for step in report["steps"]}
    assert steps == dict.fromkeys(("install", "environment", "tests", "serve"), "passed")
    assert report["environment"]["missing"] == {}
    for prompt in report["serve"]["prompts"].values():
        answers = prompt["disaggregated"], prompt["colocated"]
        assert answers[0]["token_ids"] == answers[1]["token_ids"]
        assert len(set(answers[0]["token_ids"])) > 8, "tokens that differ, so that wrong KV shows"
        assert answers[0]["transfer"]["page_bytes"] > 0


def test_a_step_that_fails_is_named_and_ends_the_check(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase $1 in *environment.py) exit 3;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    result = gpu_check(tmp_path, python, "--cpu")
    assert result.returncode == 1
    report = json.loads((tmp_path / "result.json").read_text())
    assert not report["passed"]
    assert report["serve"] is None
    outcomes = [(step["name"], step["outcome"], step["status"]) for step in report["steps"]]
    assert outcomes == [("install", "passed", 0), ("environment", "failed", 3)]
