"""``pdspan up``: a whole cluster on this machine, from a model to a URL that answers, until Ctrl-C.

The nodes are processes like those of a real cluster, started from a cluster file that stays in the
run directory beside their logs. When one ends by itself, all are stopped and it is named. Nothing
is left running: the nodes die with this process, even if it is killed.
"""

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx

from pdcore.settings import ClusterSettings, NodeSettings
from pdspan.announce import ready_json, ready_text, router_url
from pdspan.child import Child, OnProgress, node_command, status_text, stop_children
from pdspan.local_cluster import UpOptions, check_port_free, local_cluster
from pdspan.models import resolve_model
from pdspan.progress import open_progress
from pdspan.toml_text import settings_to_toml

HEALTH_INTERVAL_S = 0.1
STOP_GRACE_S = 5.0  # on top of the nodes' own drain time

ShowReady = Callable[[Sequence[Child]], None]


def run_up(options: UpOptions, *, json_output: bool = False) -> int:
    """Serve until SIGINT (exit status 130) or SIGTERM (0), or until a node ends by itself: 1, or 2
    when it says that its configuration is wrong.

    Raises ConfigError before anything starts.
    """
    started = time.monotonic()
    check_port_free(options.port)
    settings = local_cluster(options)
    with ExitStack() as display:
        progress = display.enter_context(open_progress())
        model_dir = resolve_model(settings.model.path, progress.report)
        settings = replace(settings, model=replace(settings.model, path=str(model_dir)))
        run_dir = Path(tempfile.mkdtemp(prefix="pdspan-"))
        (run_dir / "cluster.toml").write_text(settings_to_toml(settings))

        def show_ready(children: Sequence[Child]) -> None:
            display.close()
            show = ready_json if json_output else ready_text
            print(show(settings, children, run_dir, time.monotonic() - started), flush=True)

        return asyncio.run(_serve(settings, run_dir, progress.report, show_ready))


async def _serve(
    settings: ClusterSettings, run_dir: Path, on_progress: OnProgress, show_ready: ShowReady
) -> int:
    """Start all, say when they are ready, wait for a signal or a death, stop all."""
    stop, hurry = _signals()
    children = [await _start(node, run_dir) for node in settings.nodes]
    async with asyncio.TaskGroup() as tasks:
        ends = [tasks.create_task(child.run(on_progress)) for child in children]
        ready = tasks.create_task(_show_when_healthy(settings, children, show_ready))
        await asyncio.wait({*ends, stop}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        dead = [
            (child, end.result()) for child, end in zip(children, ends, strict=True) if end.done()
        ]
        await stop_children(children, ends, settings.queue.drain_s + STOP_GRACE_S, hurry)
    for child, status in dead:
        print(_obituary(child, status), file=sys.stderr)
    if not dead:
        return stop.result()
    return 2 if any(status == 2 for _, status in dead) else 1  # 2: its configuration is wrong


async def _start(node: NodeSettings, run_dir: Path) -> Child:
    command = node_command(node, run_dir / "cluster.toml")
    return await Child.start(node, command, run_dir / f"{node.name}.log")


def _signals() -> tuple[asyncio.Future[int], asyncio.Event]:
    """The first signal settles the future with the exit status, a later one sets the event."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()
    hurry = asyncio.Event()

    def on_signal(status: int) -> None:
        if stop.done():
            hurry.set()
        else:
            print("stopping; once more to stop at once", file=sys.stderr)
            stop.set_result(status)

    loop.add_signal_handler(signal.SIGINT, on_signal, 130)
    loop.add_signal_handler(signal.SIGTERM, on_signal, 0)
    return stop, hurry


async def _show_when_healthy(
    settings: ClusterSettings, children: Sequence[Child], show_ready: ShowReady
) -> None:
    url = f"{router_url(settings)}/health"
    async with httpx.AsyncClient(trust_env=False) as client:  # no proxy on the way to ourselves
        while not await _is_healthy(client, url):  # noqa: ASYNC110  no event tells of another process
            await asyncio.sleep(HEALTH_INTERVAL_S)
    show_ready(children)


async def _is_healthy(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False  # it does not listen yet


def _obituary(child: Child, status: int) -> str:
    lines = [f"    {line}" for line in child.last_lines()]
    head = f"pdspan: error: {child.node.name} {status_text(status)}"
    return "\n".join([f"{head}; its last lines:", *lines, f"  all of them: {child.log_path}"])
