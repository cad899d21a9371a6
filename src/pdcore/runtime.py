"""How a process of the cluster runs: uvloop, signals, exit status.

The first SIGTERM or SIGINT sets ``stop``: the node drains, then ends. A second one ends it at once.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

import uvloop

from pdcore.allocator import keep_freed_memory
from pdcore.errors import ConfigError, InternalError, PdspanError, root_cause
from pdcore.logs import configure_logging
from pdcore.rpc import check_bind
from pdcore.settings import ClusterSettings, NodeSettings

log = logging.getLogger(__name__)

Serve = Callable[[ClusterSettings, NodeSettings, Path, asyncio.Event], Awaitable[None]]


def run_node(serve: Serve, settings: ClusterSettings, node: NodeSettings, model_dir: Path) -> int:
    """Run one node until it is told to stop. Returns the process's exit status."""
    configure_logging(settings.name, node.name, settings.log_level)
    keep_freed_memory()
    try:
        check_bind(settings, node)
        log.info("settings", extra={"event": "settings", "settings": asdict(settings)})
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_until_stopped(serve, settings, node, model_dir))
    except asyncio.CancelledError:
        return 130
    except (PdspanError, BaseExceptionGroup) as error:
        return _explain(error, node)


def _explain(error: PdspanError | BaseExceptionGroup[BaseException], node: NodeSettings) -> int:
    """One line for the operator, a traceback in the log for a defect; the exit status."""
    cause = root_cause(error) if isinstance(error, BaseExceptionGroup) else error
    if isinstance(cause, InternalError):
        log.critical("failed", exc_info=error)
    if isinstance(cause, ConfigError):
        print(f"pdspan: error: {cause}", file=sys.stderr)
        return 2
    print(f"pdspan: error: {node.name}: {cause}", file=sys.stderr)
    return 1


async def _until_stopped(
    serve: Serve, settings: ClusterSettings, node: NodeSettings, model_dir: Path
) -> int:
    stop = asyncio.Event()
    task = asyncio.current_task()
    assert task is not None, "runs inside a task"

    def on_signal() -> None:
        if stop.is_set():
            task.cancel()
        log.info("stopping", extra={"event": "stopping"})
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await serve(settings, node, model_dir, stop)
    return 0
