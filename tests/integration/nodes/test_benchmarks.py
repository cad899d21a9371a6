"""Benchmarks that are commands of their own: they run a small model, and a mistake is one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pdengine.attention.schedules import SCHEDULES
from tiny_checkpoints import TinyModel

TRACE = (
    {"input_length": 40, "output_length": 3, "max_tokens": 60},
    {"input_length": 9, "output_length": 8, "max_tokens": 8},
    {"input_length": 17, "output_length": 5, "max_tokens": 40},
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    TinyModel("qwen3").save(directory)
    return directory


def run(module: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, "--threads", "1", "--repetitions", "1", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_trace_runs_by_each_admission(model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in TRACE))
    options = ("--model", model, "--trace", trace, "--pages", "8")
    result = run("decode_node.benchmark", *options)
    assert result.returncode == 0, result.stderr
    outcomes = {one["admission"]: one for one in map(json.loads, result.stdout.splitlines())}
    assert outcomes.keys() == {"on_demand", "reserve_max"}
    assert all(one["output_tokens"] == 16 for one in outcomes.values())
    assert outcomes["reserve_max"]["preemptions"] == 0
    assert "on_demand over reserve_max" in result.stderr


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 1: not JSON"),
        ('{"input_length": 4, "output_length": 9, "max_tokens": 8}', "output_length <= max_tokens"),
        ('{"input_length": 4, "max_tokens": 8}', "line 1: key 'output_length' is missing"),
        ("", "no request in it"),
    ],
)
def test_a_trace_that_is_wrong_is_one_line(
    model: Path, tmp_path: Path, line: str, problem: str
) -> None:
    (tmp_path / "trace.jsonl").write_text(line)
    options = ("--model", model, "--trace", tmp_path / "trace.jsonl")
    result = run("decode_node.benchmark", *options)
    assert result.returncode == 2
    (said,) = result.stderr.splitlines()
    assert problem in said


def test_every_schedule_is_timed_on_every_workload(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "schedules.json"
    options = ("--model", model, "--kv-bytes", str(2**24), "--out", out)
    result = run("pdengine.benchmark.schedules", *options)
    assert result.returncode == 0, result.stderr
    cells = json.loads(out.read_text())["cells"]
    assert len({cell["workload"] for cell in cells}) == 5
    assert {cell["schedule"] for cell in cells} == set(SCHEDULES)
    assert all(cell["attention_s"][0] > 0 and cell["step_s"][0] > 0 for cell in cells)
