"""Every command of the README is run: here, or by continuous integration itself.

A command that is neither fails the test that looks for it.
"""

import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
PORT = 8000
RUN_BY_CI = ("make test", "make check")  # .ci/run
START_S = 300


def fenced(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    """Each command of the shell blocks, a continued string included, without its comment."""
    found = []
    for block in fenced("sh"):
        for command in re.findall(r"^(?:[^'\n]|'[^']*')+$", block, re.MULTILINE):
            found.append(re.sub(r"\s+#.*", "", command).strip())
    return found


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """`make up`, as the README says it but for the port, stopped as it says: with Ctrl-C."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["make", "up", f"ARGS=--port {port} --set engine.threads=1"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, process_group=0
    ) as up:
        assert up.stdout is not None
        try:
            said = []
            while not any("curl http" in line for line in said):
                line = up.stdout.readline()
                assert line, f"make up ended: {''.join(said)}"
                said.append(line)
            printed = next(line for line in said if "curl http" in line)
            answer = run(printed.strip())
            assert "The capital of France is Paris." in answer, "the printed curl line works"
            yield f"http://127.0.0.1:{port}"
        finally:
            signal_group(up, signal.SIGINT)
            up.wait(60)


def signal_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """What a terminal does on Ctrl-C: the whole foreground group hears it."""
    import os

    os.killpg(process.pid, number)


def run(command: str) -> str:
    result = subprocess.run(
        shlex.split(command), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, f"{command}\n{result.stderr}"
    return result.stdout


def test_every_command_is_known() -> None:
    unknown = [c for c in commands() if not c.startswith((*RUN_BY_CI, "make up", "curl ", ".venv"))]
    assert commands() and not unknown


def test_curl(url: str) -> None:
    asked = [c for c in commands() if c.startswith("curl ")]
    answers = [run(c.replace(f"http://127.0.0.1:{PORT}", url)) for c in asked]
    assert "The capital of France is Paris." in answers[0]
    assert '"mode":"sequential"' in answers[1]


def test_the_python_client(url: str) -> None:
    (program,) = fenced("python")
    program = program.replace(f"http://127.0.0.1:{PORT}", url)
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert answer.stdout == "The capital of France is Paris."


def needs_a_link(command: str) -> bool:
    """Experiments run in the order in which the README shows them, over a link of their own."""
    return "pdspan lab " in command


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(c, marks=pytest.mark.tun if needs_a_link(c) else ())
        for c in commands()
        if c.startswith(".venv")
    ],
)
def test_pdspan_commands(command: str) -> None:
    assert run(command)


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links and all((ROOT / link).exists() for link in links)
