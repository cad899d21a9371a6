"""A serving scenario from file to record, with real processes: over loopback, and over a link."""

import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from pdlab.exposed import exposed_time
from pdlab.outcome import outcome_of
from pdlab.record_files import read_serving
from pdlab.records import ServingRecord
from tiny_model_dir import save_tiny_model

SCENARIO = """
name = "tiny"
about = "Two modes and the colocated baseline."
model = "{model}"
repetitions = 2
warmup = 1

[workload]
kind = "bucketed"
buckets = [40, 130]
output_tokens = 6
num_requests = 2

[[links]]
{link}

[[arms]]
name = "auto"
mode = "auto"

[[arms]]
name = "layers"
mode = "sequential_layer"
settings = {{"engine.page_tokens" = 8}}

[[arms]]
name = "colocated"
placement = "colocated"

[cluster.engine]
dtype = "float32"
kv_memory_bytes = 4194304
"""


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def start(directory: Path, model: Path, link: str, *edits: tuple[str, str]) -> subprocess.Popen:
    text = SCENARIO.format(model=model, link=link)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = directory / "tiny.toml"
    path.write_text(text)
    command = [sys.executable, "-m", "pdspan", "lab", "run", path, "--out", directory / "out"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(directory: Path, model: Path, link: str, *edits: tuple[str, str]) -> ServingRecord:
    with start(directory, model, link, *edits) as process:
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    (path,) = (directory / "out").glob("*.jsonl")
    assert str(path) in out
    assert "tokens identical in all arms for all 4 prompts" in out
    return read_serving(path)


def check(record: ServingRecord) -> None:
    """Complete, every request answered, every block with every arm, tokens of all arms equal."""
    assert record.complete
    measured = [request for request in record.requests if not request.warmup]
    assert len(measured) == 3 * 2 * 2  # arms, blocks, requests
    assert {(r.arm, r.repetition, r.index) for r in measured} == {
        (arm, block, index)
        for arm in ("auto", "layers", "colocated")
        for block in (1, 2)
        for index in (0, 1)
    }
    assert outcome_of(record).is_good
    for request in measured:
        assert len(request.token_ids) == 6
        assert request.prompt_tokens == (40, 130)[request.index]
        assert request.ttft_s is not None and request.e2e_s is not None
        assert request.timeline is not None
        if request.arm == "colocated":
            assert request.exposed_s is None
        else:
            exposed = exposed_time(request.timeline)
            assert exposed is not None and request.exposed_s == exposed.total_s
            assert exposed.to_prefill_s > 0 and exposed.to_commit_s > 0
            assert exposed.total_s < request.ttft_s
            assert (
                request.timeline["transfer"]["mode"]
                == {
                    "auto": "auto",
                    "layers": "sequential_layer",
                }[request.arm]
            )


def test_a_scenario_over_loopback(tmp_path: Path, tiny_model: Path) -> None:
    record = run(tmp_path, tiny_model, 'kind = "loopback"')
    check(record)
    assert record.link[0].kind == "loopback"
    assert record.link[0].measured_rate_bps is not None
    text = (next((tmp_path / "out").glob("*.jsonl"))).read_text()
    assert str(tiny_model) not in text  # a record names no directory


@pytest.mark.netns
def test_a_scenario_over_an_emulated_link(tmp_path: Path, tiny_model: Path) -> None:
    """20 ms away: what the link adds can be read from the record."""
    record = run(tmp_path, tiny_model, 'rtt = "20ms"\nrate = "1gbit"')
    check(record)
    rtt_s = record.link[0].rtt_min_s
    assert rtt_s is not None and rtt_s >= 0.02
    for request in record.requests:
        if request.arm != "colocated":
            exposed = exposed_time(request.timeline)
            assert exposed is not None
            assert exposed.to_prefill_s >= 0.01
            assert exposed.to_commit_s >= 0.01
    layers = [r for r in record.requests if r.arm == "layers" and r.index == 1]
    frames = 17 * 3  # pages of 8 tokens for 130, three layers
    assert all((r.timeline or {})["transfer"]["round_trips"] == frames for r in layers)
    assert all(r.exposed_s is not None and r.exposed_s > frames * 0.02 for r in layers)


def test_a_node_that_does_not_start_is_told_in_a_line(tmp_path: Path, tiny_model: Path) -> None:
    wrong = ("kv_memory_bytes = 4194304", 'attention = "flush"')
    with start(tmp_path, tiny_model, 'kind = "loopback"', wrong) as process:
        out, err = process.communicate(timeout=200)
    assert process.returncode == 1, out + err
    assert "flush" in err.splitlines()[-1]
    (path,) = (tmp_path / "out").glob("*.jsonl")
    assert not read_serving(path).complete


@pytest.mark.netns
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, tiny_model: Path) -> None:
    with start(tmp_path, tiny_model, 'rtt = "20ms"\nrate = "1gbit"') as process:
        out = tmp_path / "out"
        wait_until_written(out, process)
        nodes = children(process.pid)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(nodes) >= 4  # three nodes and the client
    assert not [pid for pid in nodes if Path(f"/proc/{pid}").exists()]
    (path,) = out.glob("*.jsonl")
    assert not read_serving(path).complete


def line_count(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def wait_until_written(directory: Path, process: subprocess.Popen) -> None:
    """Until the first requests stand in the record."""
    end_s = monotonic() + 120
    while not any(line_count(path) > 3 for path in directory.glob("*.jsonl")):
        assert process.poll() is None, process.communicate()
        assert monotonic() < end_s
        sleep(0.1)
