"""The command line as a user meets it: help, exit status, one clear line for a mistake."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pdcore.cluster import NodeRole
from pdcore.errors import PeerUnavailable
from pdcore.settings import load_cluster
from pdcore.version import __version__
from pdspan.local_cluster import UpOptions
from pdspan.main import main

COMMANDS = ["up", "router", "prefill", "decode", "models", "models list", "models fetch", "config"]
CLUSTER = """
[[nodes]]
name = "d"
role = "decode"
bind = "0.0.0.0:7001"
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    return str(path)


def usage_error(words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(words.split())
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_command_has_help_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert usage_error(f"{command} --help") == 0
    assert f"example:\n  pdspan {command}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_error("--version") == 0
    assert capsys.readouterr().out == f"pdspan {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "required: COMMAND"),
        ("fly", "invalid choice: 'fly'"),
        ("models", "required: ACTION"),
        ("up --port 65536", "'65536' is not a whole number from 0 to 65535"),
        ("up --port x", "'x' is not a whole number"),
        ("up --decode 0", "'0' is not a whole number at least 1"),
        ("up --prefill -1", "argument --prefill"),
        ("up --prefill 1 --colocated", "not allowed with argument --prefill"),
        ("decode --node d", "required: --cluster"),
        ("decode --cluster c.toml", "required: --node"),
        ("config --cluster", "expected one argument"),
    ],
)
def test_wrong_usage_is_status_2(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert usage_error(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("config --cluster none.toml", "no cluster file at none.toml"),
        ("config --cluster {cluster} --set a", "--set a: expected key=value"),
        ("config --cluster {cluster} --set transfer.mode=fast", "transfer.mode is 'fast'; one of"),
        ("lab transfer --set transfer.mode=fast", "transfer.mode is 'fast'; one of"),
        ("config --cluster {cluster} --set modle.path=x", "unknown key 'modle'; did you mean"),
        ("decode --cluster {cluster} --node x", "no node named 'x' in the cluster file; it has: d"),
        ("decode --cluster {cluster} --node d", "0.0.0.0:7001 is not a loopback address and TLS"),
        (
            "prefill --cluster {cluster} --node d",
            "d is a decode node: start it with 'pdspan decode'",
        ),
        ("up --port 0 --transfer fast", "transfer.mode is 'fast'; one of sequential_layer"),
        ("up --port 0 --dtype int8", "engine: dtype is 'int8'; one of auto, bfloat16"),
        ("up --port 0 --model nope", "no model 'nope'"),
        ("models fetch nope", "no model 'nope'"),
    ],
)
def test_wrong_configuration_is_one_line_and_status_2(
    words: str, message: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.format(cluster=cluster).split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pdspan: error: ")
    assert message in line


@pytest.mark.parametrize("path", ["{folder}", "{folder}/file/out.json", "/dev/null/out.json"])
def test_a_record_that_could_not_be_written_is_found_out_first(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("pdlab.transfer.run.run_steps", lambda *_, **__: pytest.fail("was run"))
    path = path.format(folder=tmp_path)
    assert main(["lab", "transfer", "--link", "loopback", "--json", path]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"pdspan: error: {path}: cannot write: ")


def test_insecure_passes_the_bind_check(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["decode", "--cluster", cluster, "--node", "d", "--insecure", "--set", "model.path=no"]
    assert main(words) == 2
    assert "no model 'no'" in capsys.readouterr().err


def test_up_passes_on_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run_up(options: UpOptions, *, json_output: bool) -> int:
        asked.append((options, json_output))
        return 0

    monkeypatch.setattr("pdspan.up.run_up", run_up)
    assert main(["up"]) == 0
    words = (
        "up --model m --port 9000 --colocated --decode 2 --transfer bulk --dtype float32"
        " --weights int8 --json"
    )
    assert main([*words.split(), "--set", "a=1", "--set", "b=2"]) == 0
    assert asked == [
        (UpOptions("smollm2-135m-instruct", 8000, 1, 1), False),
        (UpOptions("m", 9000, 0, 2, "bulk", "float32", "int8", ("a=1", "b=2")), True),
    ]


@pytest.mark.parametrize("role", NodeRole)
def test_node_commands_pass_on_what_was_said(
    role: NodeRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "pdspan.node.run_one_node", lambda *args, **options: asked.append((args, options)) or 0
    )
    words = f"{role} --cluster c.toml --node n --set a=1 --insecure --parent-pid 7"
    assert main(words.split()) == 0
    options = {"overrides": ["a=1"], "insecure": True, "parent_pid": 7}
    assert asked == [((role, Path("c.toml"), "n"), options)]


@pytest.mark.parametrize(
    ("error", "status"), [(PeerUnavailable("gone"), 1), (KeyboardInterrupt(), 130)]
)
def test_failure_at_run_time_and_interrupt(
    error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(options: UpOptions, *, json_output: bool) -> int:
        raise error

    monkeypatch.setattr("pdspan.up.run_up", fail)
    assert main(["up"]) == status


def test_config_prints_what_can_be_read_back(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "--cluster", cluster, "--set", "transfer.mode=bulk"]) == 0
    (tmp_path / "again.toml").write_text(capsys.readouterr().out)
    assert load_cluster(tmp_path / "again.toml") == load_cluster(
        Path(cluster), ["transfer.mode=bulk"]
    )


def test_models_list_and_fetch(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list"]) == 0
    assert "not fetched yet" in capsys.readouterr().out
    directory = cache / "models" / "smollm2-135m-instruct"
    directory.mkdir(parents=True)
    assert main(["models", "list"]) == 0
    assert str(directory) in capsys.readouterr().out
    assert main(["models", "fetch"]) == 0
    assert capsys.readouterr().out == f"{directory}\n"


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom pdspan.arguments import build_parser\nimport pdspan.main\n"
        "build_parser().format_help()\n"
        "heavy = {'torch', 'grpc', 'transformers', 'gguf', 'rich', 'httpx', 'numpy'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == []
