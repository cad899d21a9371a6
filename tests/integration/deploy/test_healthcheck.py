"""deploy/healthcheck.py where nothing answers, and when it is told wrongly.

What it says of nodes that run is in test_two_hosts.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[3] / "deploy"
FILE = DEPLOY / "clusters/loopback.toml"


def healthcheck(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, DEPLOY / "healthcheck.py", *arguments]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PDSPAN_")}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=clean | environment
    )


@pytest.fixture
def unused(tmp_path: Path) -> Path:
    """A cluster file whose ports nobody listens on: 1 to 3 are never handed out."""
    text = FILE.read_text()
    for number, port in enumerate(("8000", "7001", "7002"), 1):
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{number}")
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["router-0", "prefill-0", "decode-0"])
def test_a_node_that_does_not_answer_is_unhealthy(unused: Path, name: str) -> None:
    result = healthcheck(unused, name)
    assert result.returncode == 1
    assert result.stdout.startswith(f"{name}: 127.0.0.1:")


def test_arguments_default_to_the_environment(unused: Path) -> None:
    result = healthcheck(PDSPAN_CLUSTER=str(unused), PDSPAN_NODE="decode-0")
    assert result.returncode == 1
    assert result.stdout.startswith("decode-0: 127.0.0.1:3:")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "set PDSPAN_CLUSTER and PDSPAN_NODE"),
        ((FILE,), "give a cluster file and a node's name"),
        ((FILE, "decode-9"), "no node named 'decode-9'"),
        (("nowhere.toml", "decode-0"), "no cluster file at nowhere.toml"),
    ],
)
def test_wrong_arguments_end_with_status_2(arguments: tuple[str | Path, ...], message: str) -> None:
    result = healthcheck(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
