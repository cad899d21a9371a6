"""``pdspan link``: up, status, exec, measure, down; and one line for each mistake."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdlab.link import LinkProfile, TcpSettings, measure, open_link, state, tun
from pdlab.link.namespaces import namespace_names
from pdlab.link.processes import Process
from pdlab.link.state import LinkState
from pdspan.main import main

NAME = f"test-{os.getpid()}"


def pdspan(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pdspan", "link", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def link_down() -> Iterator[None]:
    yield
    pdspan("down", "--name", NAME)


@pytest.mark.tun
def test_a_link_stays_up_between_commands(link_down: None) -> None:
    options = ("--rtt", "10ms", "--rate", "1gbit", "--jitter", "1ms", "--queue", "2MiB")
    up = pdspan("up", "--name", NAME, *options)
    assert up.returncode == 0, up.stderr
    assert up.stdout.startswith(f"{NAME} is up: tun, rtt 10 ms, 1 Gbit/s, jitter 1 ms, queue 2 MiB")

    again = pdspan("up", "--name", NAME)
    assert again.returncode == 2
    assert f"a link '{NAME}' is already up" in again.stderr

    there = pdspan("exec", "--name", NAME, "b", "--", "ip", "-br", "address", "show", "link0")
    assert "198.18.0.2/24" in there.stdout
    assert pdspan("exec", "--name", NAME, "a", "--", "sh", "-c", "exit 7").returncode == 7

    measured = json.loads(pdspan("measure", "--name", NAME, "--json").stdout)
    assert measured["kind"] == "tun" and measured["rtt_min_s"] >= 0.01

    lines = pdspan("status", "--json").stdout.splitlines()
    (status,) = [line for line in map(json.loads, lines) if line["name"] == NAME]
    assert status["profile"]["rtt_s"] == 0.01
    assert status["counters"]["a_to_b"]["bytes"] > 0

    down = pdspan("down", "--name", NAME)
    assert down.stdout == f"{NAME} is down\n"
    assert not [name for name in namespace_names() if NAME in name]
    assert pdspan("down", "--name", NAME).stdout == f"no link '{NAME}' is up\n"


@pytest.mark.tun
def test_a_link_whose_forwarder_died_is_a_leftover(link_down: None) -> None:
    assert pdspan("up", "--name", NAME).returncode == 0
    (found,) = [link for link in state.known_links() if link.name == NAME]
    assert found.forwarder is not None
    found.forwarder.end()
    assert NAME not in pdspan("status").stdout
    down = pdspan("down", "--name", NAME)
    assert f"{NAME}: cleared what a killed run had left behind" in down.stdout
    assert not [name for name in namespace_names() if NAME in name]


def test_a_relay_needs_no_root(link_down: None) -> None:
    up = pdspan("up", "--name", NAME, "--relay", "8000,9000", "--rtt", "1ms")
    assert up.returncode == 0, up.stderr
    assert "port 9000 of this machine is reached as 127.0.0.1:" in up.stdout
    assert NAME in pdspan("status").stdout
    assert pdspan("down", "--name", NAME).stdout == f"{NAME} is down\n"


def test_status_of_one_link(link_down: None) -> None:
    assert pdspan("up", "--name", NAME, "--relay", "8000", "--rtt", "1ms").returncode == 0
    with open_link("loopback", LinkProfile()):
        one = pdspan("status", "--name", NAME)
        both = pdspan("status")
    assert one.stdout == f"{NAME} is up: relay, rtt 1 ms, any rate, queue 1 MiB\n"
    assert " is up: loopback\n" in both.stdout, "which has no queue"
    assert one.stdout in both.stdout


def test_a_link_that_comes_up_hides_no_other(
    link_down: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its owner lives, and its process has not been started."""
    assert pdspan("up", "--name", NAME, "--relay", "8000", "--rtt", "1ms").returncode == 0
    owner = Process.with_pid(os.getpid())
    rising = LinkState(f"a{NAME}", "tun", LinkProfile(rtt_s=0.001, loss=1.0), TcpSettings(), owner)
    state.register(rising)
    try:
        assert main(["link", "status"]) == 1
        said = capsys.readouterr().out
        assert main(["link", "status", "--name", rising.name, "--json"]) == 1
        told = json.loads(capsys.readouterr().out)
        assert main(["link", "status", "--name", NAME]) == 0
    finally:
        state.take_down(rising)
    problem = f"link 'a{NAME}': it is still coming up, or being taken down"
    queue = "queue 1 MiB"
    assert f"a{NAME} does not answer: tun, rtt 1 ms, any rate, loss 100%, {queue}\n" in said
    assert f"  {problem}\n" in said
    assert f"{NAME} is up: relay, rtt 1 ms, any rate, {queue}\n" in said
    assert (told["name"], told["counters"], told["problem"]) == (rising.name, None, problem)


@pytest.mark.tun
def test_measuring_a_link_that_loses_everything_names_it(
    link_down: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pdspan("up", "--name", NAME, "--loss", "100%").returncode == 0
    monkeypatch.setattr(measure, "ANSWER_S", 0.5)
    assert main(["link", "measure", "--name", NAME]) == 1
    assert capsys.readouterr().err == (
        f"pdspan: error: link '{NAME}': measuring failed: nothing came through within 0.5 s\n"
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["up", "--rtt", "20"], "'20' has no unit: a time is in ns, us, ms, s, such as 50ms"),
        (["up", "--rate", "fast"], "'fast' is not a rate, such as 1gbit"),
        (["up", "--loss", "101%"], "'101%' is more than all: a share is at most 100%"),
        (
            ["up", "--queue", "10B"],
            "link: queue 10 bytes: it must be from 1500 to 1073741824",
        ),
        (["up", "--buffers", "huge"], "no TCP buffers 'huge'; there are: large, stock"),
        (["up", "--relay", "80a"], "link up --relay: '80a' is not a port"),
        (["up", "--relay", "80", "--loss", "1%"], "a relay cannot lose packets"),
        (["up", "--name", "A_"], "'A_' cannot be a link's name"),
        (["exec", "--name", "nonesuch", "a", "--", "true"], "no link 'nonesuch' is up"),
        (["measure", "--name", "nonesuch"], "no link 'nonesuch' is up"),
        (["status", "--name", "nonesuch"], "no link 'nonesuch' is up"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["link", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("pdspan: error: ") and said.count("\n") == 1
    assert reason in said


def test_without_root_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert main(["link", "up", "--name", NAME]) == 2
    assert capsys.readouterr().err == (
        "pdspan: error: a tun link needs root, for network namespaces; "
        "without root there is the relay\n"
    )
    assert not list(tmp_path.rglob("*.json"))


def test_without_a_tun_device_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(state, "state_dir", lambda: tmp_path)
    monkeypatch.setattr(tun, "TUN", tmp_path / "none")
    assert main(["link", "up", "--name", NAME]) == 2
    assert f"a tun link needs {tmp_path}/none, and this machine has none" in capsys.readouterr().err


def test_without_a_compiler_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(state, "state_dir", lambda: tmp_path)
    monkeypatch.setattr(tun, "TUN", tmp_path)
    monkeypatch.setenv("PDSPAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["link", "up", "--name", NAME]) == 2
    assert "needs a C compiler (cc) once, and there is none in PATH" in capsys.readouterr().err
