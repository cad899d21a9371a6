"""Engines as processes: asked in turns, stopped meanwhile, ended with the experiment."""

import json
import sys
from pathlib import Path

import pytest

from pdcore.errors import ConfigError, PeerUnavailable
from pdlab.engine.arms import EngineArm, Running, cluster_arm, pdspan_arm, started
from pdlab.engine.page import BARS, CLUSTER, IN_CHUNKS, PAGE, RECORD, judged, write_page
from pdlab.engine.run import FIRST_TOKEN, EngineCell, EngineRecord, measure
from pdlab.host import describe_host
from tiny_checkpoints import TinyModel
from tiny_model_dir import save_tiny_model
from waiting import wait_until

TASKS = {
    "prefill": {"task": "prefill", "tokens": 40},
    "decode": {"task": "decode", "batch": 3, "context": 20, "steps": 4},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    TinyModel("qwen3").save(directory)
    return directory


def test_two_arms_take_turns_and_every_repetition_is_recorded(model: Path) -> None:
    arms = [
        pdspan_arm("a", model, 1, "--dtype", "float32", tasks=TASKS),
        pdspan_arm("b", model, 1, "--dtype", "bfloat16", "--kv-bytes", str(2**22), tasks=TASKS),
    ]
    record = measure(
        arms, scenario="test", threads=1, repetitions=2, tasks=TASKS, progress=lambda *_: None
    )
    assert record.dtypes == {"a": "float32", "b": "bfloat16"}
    assert {(cell.arm, cell.task) for cell in record.cells} == {
        (arm, task) for arm in "ab" for task in TASKS
    }
    for cell in record.cells:
        assert len(cell.tokens_per_s) == 2 and min(cell.tokens_per_s) > 0
        assert (cell.floor_share is None) == (cell.task == "prefill")


def test_an_arm_is_asked_its_own_tasks_only(model: Path) -> None:
    arms = [
        pdspan_arm("a", model, 1, tasks=TASKS),
        pdspan_arm("b", model, 1, tasks={"prefill"}),
    ]
    record = measure(
        arms, scenario="test", threads=1, repetitions=1, tasks=TASKS, progress=lambda *_: None
    )
    assert [cell.task for cell in record.cells if cell.arm == "b"] == ["prefill"]


def test_a_cluster_answers_with_the_time_to_its_first_token(tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "model")
    with started(cluster_arm("cluster", model, 1, tasks=())) as cluster:
        answer = cluster.ask({"task": "prefill", "tokens": 40})
        assert answer["tokens"] == 40 and isinstance(answer["seconds"], float)
        with pytest.raises(ConfigError, match=r"^cluster: no such task: .*dance"):
            cluster.ask({"task": "dance"})
        with pytest.raises(ConfigError, match=r"^cluster: the cluster gave no token: "):
            cluster.ask({"task": "prefill", "tokens": 10**6})


def test_a_task_that_cannot_be_done_is_one_line_and_the_engine_goes_on(model: Path) -> None:
    with started(pdspan_arm("a", model, 1, "--kv-bytes", str(2**20), tasks=())) as engine:
        with pytest.raises(ConfigError, match=r"^a: the KV pool is too small for this batch"):
            engine.ask({"task": "decode", "batch": 4096, "context": 20, "steps": 4})
        with pytest.raises(ConfigError, match=r"^a: no such task: .*dance"):
            engine.ask({"task": "dance"})
        assert engine.ask({"task": "prefill", "tokens": 8})["tokens"] == 8


def test_an_engine_that_ends_says_why(tmp_path: Path) -> None:
    arm = pdspan_arm("a", tmp_path / "nothing", 1, tasks=())
    with (
        pytest.raises(PeerUnavailable, match=r"the engine of arm a ended: .*nothing"),
        started(arm),
    ):
        pass


def test_a_stopped_engine_answers_nothing_until_it_is_asked() -> None:
    said = "import sys\nprint('{}', flush=True)\nfor line in sys.stdin: print(line, flush=True)"
    with started(EngineArm("echo", (sys.executable, "-c", said), ())) as echo:
        wait_until(lambda: is_stopped(echo))
        assert echo.ask({"task": "read"}) == {"task": "read"}
        wait_until(lambda: is_stopped(echo))


def is_stopped(engine: Running) -> bool:
    return Path(f"/proc/{engine.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_the_page_judges_pairs_of_one_block(tmp_path: Path) -> None:
    cells = (
        EngineCell("pdspan", "decode 1 x 128", (40.0, 80.0, 60.0), (0.5, 0.8, 0.7)),
        EngineCell("vllm", "decode 1 x 128", (20.0, 20.0, 30.0)),
        EngineCell(CLUSTER, FIRST_TOKEN, (1024.0, 1024.0, 2048.0)),
        EngineCell(IN_CHUNKS, FIRST_TOKEN, (1280.0, 2048.0, 4096.0)),
    )
    record = EngineRecord("test", "now", "c", describe_host(), 2, {"pdspan": "bfloat16"}, cells)
    figures = {bar.what: figure for bar, figure in judged(record)}
    assert figures["decode 1 x 128: pdspan over vllm"] == 2.0
    assert figures["decode 1 x 128: pdspan over the memory floor"] == 0.7
    assert figures[f"{FIRST_TOKEN}: {CLUSTER} minus {IN_CHUNKS}, ms"] == pytest.approx(500.0)
    assert sum(figure is None for figure in figures.values()) == len(BARS) - 3
    write_page(tmp_path, record)
    page = (tmp_path / PAGE).read_text()
    assert f"{IN_CHUNKS}, ms | <= 120 | 500.00 | **not met** |" in page
    assert "| decode 1 x 128: pdspan over the memory floor | >= 0.75 | 0.70 | **not met** |" in page
    assert json.loads((tmp_path / RECORD).read_text())["cells"][1]["arm"] == "vllm"
