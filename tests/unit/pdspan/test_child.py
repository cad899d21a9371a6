"""A child process: its log is kept whole, its progress heard, its end seen, its stop sure."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pdcore.cluster import NodeRole
from pdcore.settings import NodeSettings
from pdspan.child import Child, node_command, status_text, stop_children

NODE = NodeSettings("prefill-1", NodeRole.PREFILL, "127.0.0.1:7001")

# Both report progress once their handler is in place, so that no signal comes before it.
READY = """
print('{"event": "load", "stage": "ready", "fraction": 1}', flush=True)
"""
STUBBORN = f"""
import signal
signal.signal(signal.SIGTERM, lambda *_: None)
{READY}
while True:
    signal.pause()
"""
OBEDIENT = f"""
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
{READY}
signal.pause()
"""


def silent(task: str, fraction: float) -> None:
    pass


async def start(script: str, log_path: Path) -> Child:
    return await Child.start(NODE, [sys.executable, "-c", script], log_path)


async def stop_when_ready(child: Child, grace_s: float, hurry: asyncio.Event) -> int:
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        end = tasks.create_task(child.run(lambda task, fraction: ready.set()))
        await ready.wait()
        await stop_children([child], [end], grace_s, hurry)
    return end.result()


async def test_log_progress_and_status(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        'print(\'{"event": "load", "stage": "weights", "fraction": 0.5}\')\n'
        "print('plain words', file=sys.stderr)\n"
        'print(\'{"event": "load", "stage": "weights", "fraction": 1}\')\n'
        'print(\'{"event": "load", "stage": 3, "fraction": "x"}\')\n'
        "print('[1]')\n"
        "print('no line end', end='')\n"
        "sys.exit(3)\n"
    )
    child = await start(script, tmp_path / "log")
    heard: list[tuple[str, float]] = []
    assert await child.run(lambda *report: heard.append(report)) == 3
    assert heard == [("prefill-1: weights", 0.5), ("prefill-1: weights", 1.0)]
    log = (tmp_path / "log").read_text()
    assert "plain words\n" in log
    assert log.endswith("no line end")


async def test_last_lines_are_readable(tmp_path: Path) -> None:
    record = '{"time": "T", "level": "error", "message": "broke", "traceback": "one\\\\ntwo"}'
    script = f"print('early\\n' * 50)\nprint('{record}')\nprint('plain')"
    child = await start(script, tmp_path / "log")
    await child.run(silent)
    assert child.last_lines()[-4:] == ["T error broke", "one", "two", "plain"]
    assert len(child.last_lines()) == 12


async def test_very_long_lines_do_no_harm(tmp_path: Path) -> None:
    child = await start("print('x' * 3_000_000)", tmp_path / "log")
    assert await child.run(silent) == 0
    assert (tmp_path / "log").stat().st_size == 3_000_001


async def test_stop_is_sigterm_and_waits(tmp_path: Path) -> None:
    child = await start(OBEDIENT, tmp_path / "log")
    assert await stop_when_ready(child, 60, asyncio.Event()) == 0


@pytest.mark.parametrize("hurried", [False, True])
async def test_one_that_does_not_stop_is_killed(tmp_path: Path, hurried: bool) -> None:
    child = await start(STUBBORN, tmp_path / "log")
    hurry = asyncio.Event()
    if hurried:
        hurry.set()
    assert await stop_when_ready(child, 60 if hurried else 0.1, hurry) == -signal.SIGKILL


async def test_stopping_one_that_has_ended_is_nothing(tmp_path: Path) -> None:
    child = await start("", tmp_path / "log")
    async with asyncio.TaskGroup() as tasks:
        end = tasks.create_task(child.run(silent))
        await asyncio.wait([end])
        await stop_children([child], [end], 60, asyncio.Event())
    assert end.result() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal")
def test_children_die_with_a_parent_that_is_killed() -> None:
    child = (
        "import os, signal, sys\nfrom pdspan.node import die_with_parent\n"
        "die_with_parent(int(sys.argv[1]))\nprint('ready', flush=True)\nsignal.pause()"
    )
    parent = (
        "import os, subprocess, sys, signal\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())])\n"
        "signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        assert process.stdout.read() == b""  # the pipe closes when the last holder has died


def test_child_of_a_parent_that_is_gone_ends_at_once() -> None:
    script = "from pdspan.node import die_with_parent; die_with_parent(1)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 1


def test_command_names_file_node_and_parent() -> None:
    assert node_command(NODE, Path("c.toml"))[1:] == [
        *("-m", "pdspan", "prefill", "--node", "prefill-1", "--cluster", "c.toml"),
        *("--parent-pid", str(os.getpid())),
    ]


def test_status_in_words() -> None:
    assert status_text(3) == "ended with status 3"
    assert status_text(-signal.SIGKILL) == "was killed by SIGKILL"
