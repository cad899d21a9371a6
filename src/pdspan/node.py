"""``pdspan router|prefill|decode``: one process of a cluster.

Everything that can be wrong with the configuration is found before anything is loaded. Only the
package of the role that runs is imported.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pdcore.cluster import NodeRole
from pdcore.errors import ConfigError
from pdcore.rpc import check_bind
from pdcore.runtime import Serve, run_node
from pdcore.settings import load_cluster, with_insecure
from pdspan.cluster_checks import check_mode
from pdspan.models import resolve_model
from pdspan.progress import open_progress

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def run_one_node(
    role: NodeRole,
    cluster: Path,
    name: str,
    *,
    overrides: Sequence[str] = (),
    insecure: bool = False,
    parent_pid: int | None = None,
) -> int:
    """Serve until a signal comes; the exit status. Raises ConfigError before anything is loaded."""
    if parent_pid is not None:
        die_with_parent(parent_pid)
    settings = load_cluster(cluster, overrides)
    if insecure:
        settings = with_insecure(settings)
    node = settings.node(name)
    if node.role is not role:
        raise ConfigError(f"{name} is a {node.role} node: start it with 'pdspan {node.role}'")
    check_bind(settings, node)
    check_mode(settings)
    with open_progress() as progress:
        model_dir = resolve_model(settings.model.path, progress.report)
    return run_node(_service(role), settings, node, model_dir)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends.

    Linux only; elsewhere a parent that is killed leaves its children behind.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before we asked
        raise SystemExit(1)


def _service(role: NodeRole) -> Serve:
    # Before torch is loaded: OpenMP's threads would spin while they wait, and steal the cores of
    # every other node on this machine. Measured, decode of one sequence on 2 cores, tokens/s of a
    # node alone and of each of two at once: 195 and 7 as OpenMP does it, 80 and 76 without
    # spinning, 139 and 64 with these few microseconds of it.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "500")
    match role:
        case NodeRole.ROUTER:
            from router.app import serve
        case NodeRole.PREFILL:
            from prefill_node.process import serve
        case NodeRole.DECODE:
            from decode_node.process import serve
    return serve
