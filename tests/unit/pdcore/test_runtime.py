"""How a node's process ends: by a signal, by a second one, or with an error that is one line."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdcore.cluster import NodeRole
from pdcore.errors import ConfigError, InternalError, NoCapacity
from pdcore.node_server import background
from pdcore.runtime import Serve, run_node
from pdcore.settings import ClusterSettings, NodeSettings

NODE = NodeSettings("decode-1", NodeRole.DECODE, "127.0.0.1:7001")


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """A node's process configures the root logger; this process is not one."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def run(serve: Serve, node: NodeSettings = NODE) -> int:
    return run_node(serve, ClusterSettings(), node, Path("model"))


def raising(error: Exception, *, in_a_task: bool = False) -> Serve:
    async def fails() -> None:
        raise error

    async def serve(*_: object) -> None:
        if in_a_task:
            async with background(fails()):
                await asyncio.get_running_loop().create_future()
        await fails()

    return serve


def last_line(capfd: pytest.CaptureFixture[str]) -> str:
    return capfd.readouterr().err.splitlines()[-1]


def test_the_first_signal_is_a_request_to_stop() -> None:
    async def serve(
        settings: ClusterSettings, node: NodeSettings, model_dir: Path, stop: asyncio.Event
    ) -> None:
        assert (node, model_dir) == (NODE, Path("model"))
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()

    assert run(serve) == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_it_at_once(second: signal.Signals) -> None:
    ended = []

    async def serve(*arguments: object) -> None:
        stop = arguments[-1]
        assert isinstance(stop, asyncio.Event)
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        os.kill(os.getpid(), second)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cleaned up")

    assert run(serve) == 130
    assert ended == ["cleaned up"]


@pytest.mark.parametrize("in_a_task", [False, True])
def test_a_wrong_setting_is_one_line_and_status_2(
    in_a_task: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    error = ConfigError("decode-1: cannot listen on 127.0.0.1:7001: the port is taken")
    assert run(raising(error, in_a_task=in_a_task)) == 2
    captured = capfd.readouterr().err
    assert captured.splitlines()[-1] == f"pdspan: error: {error}"
    assert "Traceback" not in captured


@pytest.mark.parametrize("in_a_task", [False, True])
def test_another_error_of_ours_is_one_line_with_the_node_and_status_1(
    in_a_task: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(raising(NoCapacity("no room"), in_a_task=in_a_task)) == 1
    assert last_line(capfd) == "pdspan: error: decode-1: no room"


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), InternalError("NaN")])
def test_a_defect_in_a_task_has_its_traceback_in_the_log(
    error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(raising(error, in_a_task=True)) == 1
    *lines, last = capfd.readouterr().err.splitlines()
    assert last.startswith("pdspan: error: decode-1: ")
    assert f"{type(error).__name__}: {error}" in json.loads(lines[-1])["traceback"]


def test_a_bind_that_is_refused_never_serves(capfd: pytest.CaptureFixture[str]) -> None:
    async def serve(*_: object) -> None:
        pytest.fail("does not start")

    open_node = NodeSettings("decode-1", NodeRole.DECODE, "0.0.0.0:7001")
    assert run(serve, open_node) == 2
    assert "--insecure" in last_line(capfd)


def test_the_settings_are_in_the_log_in_full(capfd: pytest.CaptureFixture[str]) -> None:
    run(raising(NoCapacity("x")))
    first = json.loads(capfd.readouterr().err.splitlines()[0])
    assert first["event"] == "settings"
    assert first["settings"]["transfer"]["mode"] == "auto"
