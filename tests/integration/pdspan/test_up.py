"""`pdspan up` as a user meets it: a line to copy that works, a clean end, nothing left behind."""

import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

UP = [sys.executable, "-m", "pdspan", "up", "--set", "engine.kv_memory_bytes=50_000_000"]
END_S = 60

pytestmark = pytest.mark.model


@contextmanager
def pdspan_up(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [*UP, "--port", "0", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()  # nothing, once it has ended


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    answer: dict[str, Any] = json.loads(line)
    return answer


def wait_until_gone(pidfds: list[int]) -> None:
    """A pidfd becomes readable when its process ends."""
    for pidfd in pidfds:
        assert select.select([pidfd], [], [], END_S)[0], "a node is still running"
        os.close(pidfd)


def pidfds(nodes: list[dict[str, Any]]) -> list[int]:
    return [os.pidfd_open(node["pid"]) for node in nodes]


def printed_curl(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().startswith("curl "):
            return shlex.split(line)
    raise AssertionError(process.communicate()[1])


@pytest.mark.usefixtures("default_model")
def test_the_printed_curl_line_works_and_ctrl_c_ends_it() -> None:
    with pdspan_up() as process:
        _, url, _, header, _, body = printed_curl(process)
        name, _, value = header.partition(": ")
        answer = httpx.post(url, headers={name: value}, content=body, timeout=END_S).json()
        assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
        process.send_signal(signal.SIGINT)
        assert process.wait(END_S) == 130


@pytest.mark.usefixtures("default_model")
def test_a_node_that_dies_is_named_and_all_are_stopped() -> None:
    with pdspan_up("--json", "--colocated") as process:
        nodes = ready(process)["nodes"]
        running = pidfds(nodes)
        os.kill(nodes[-1]["pid"], signal.SIGKILL)
        _, errors = process.communicate(timeout=END_S)
        assert process.returncode == 1
        wait_until_gone(running)
    assert "pdspan: error: decode-1 was killed by SIGKILL; its last lines:" in errors
    assert "ready on " in errors
    assert f"all of them: {nodes[-1]['log']}" in errors
    assert "ready on " in Path(nodes[-1]["log"]).read_text()


@pytest.mark.usefixtures("default_model")
def test_nothing_is_left_when_it_is_killed() -> None:
    with pdspan_up("--json", "--colocated") as process:
        running = pidfds(ready(process)["nodes"])
        process.kill()
        wait_until_gone(running)


@pytest.mark.usefixtures("default_model")
def test_a_node_that_cannot_start_says_why() -> None:
    with pdspan_up("--set", "engine.attention=none") as process:
        _, errors = process.communicate(timeout=END_S)
    assert process.returncode == 2
    assert "ended with status 2; its last lines:" in errors
    assert (
        "pdspan: error: engine.attention is 'none'; one of auto, flashinfer, cpu, torch" in errors
    )


def test_a_port_that_is_taken_is_one_line_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*UP, "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=END_S)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"pdspan: error: cannot listen on 127.0.0.1:{port}: Address already")
