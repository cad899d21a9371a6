"""An engine becomes part of a node: loaded on the compute thread, its pool shown as a NodeLoad."""

import logging
from pathlib import Path

from pdcore.cluster import NodeLoad
from pdcore.compute import ComputeThread
from pdcore.settings import EngineSettings
from pdengine.engine import Engine
from pdengine.page_pool import PagePool

log = logging.getLogger(__name__)


async def load_engine(model_dir: Path, settings: EngineSettings, compute: ComputeThread) -> Engine:
    """Load on ``compute``, since torch's thread settings belong to the thread that computes.

    Progress goes to the log, as ``event`` = ``load`` lines. Raises ConfigError.
    """
    return await compute.run(Engine.load, model_dir, settings, _ProgressLog().report)


class _ProgressLog:
    """A line for each tenth of a stage."""

    def __init__(self) -> None:
        self._last = ("", -1)

    def report(self, stage: str, fraction: float) -> None:
        now = (stage, int(10 * fraction))
        if now != self._last:
            self._last = now
            extra = {"event": "load", "stage": stage, "fraction": round(fraction, 3)}
            log.info("loading: %s", stage, extra=extra)


def node_load(
    pool: PagePool, *, num_queued: int, num_running: int, num_transferring: int
) -> NodeLoad:
    counts = pool.counts()
    return NodeLoad(
        num_queued=num_queued,
        num_running=num_running,
        num_transferring=num_transferring,
        pages_free=counts.free,
        pages_cached=counts.cached,
        pages_reserved=counts.reserved,
        pages_used=counts.used,
        pages_draining=counts.draining,
        pages_promised=counts.promised,
    )
