"""The cluster that ``pdspan up`` runs: every node on this machine, on loopback.

Ports are chosen by the system just before the nodes start; a node that finds its port taken in the
moment between says so and ends, and ``up`` with it.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdcore.cluster import NodeRole
from pdcore.errors import ConfigError
from pdcore.settings import ClusterSettings, cluster_from_table
from pdspan.cluster_checks import check_mode

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What was asked for on the command line. None: as the settings' defaults have it.

    ``num_prefill`` 0 is the colocated cluster: decode nodes prefill themselves.
    """

    model: str
    port: int
    num_prefill: int
    num_decode: int
    transfer: str | None = None
    dtype: str | None = None
    weights: str | None = None
    overrides: tuple[str, ...] = ()


def local_cluster(options: UpOptions) -> ClusterSettings:
    """Settings with a node per process, ``--set`` laid over everything. Raises ConfigError.

    ``model.path`` is still what the user said, not yet the directory.
    """
    table: dict[str, Any] = {
        "model": {"path": options.model, "served_name": served_name(options.model)},
        "engine": {"threads": threads_per_node(num_cores(), options)},
        "nodes": list(_nodes(options)),
    }
    if options.num_prefill == 0:
        table["router"] = {"placement": "colocated"}
    for key, value in (("dtype", options.dtype), ("weights", options.weights)):
        if value is not None:
            table["engine"][key] = value
    if options.transfer is not None:
        table["transfer"] = {"mode": options.transfer}
    settings = cluster_from_table(table, options.overrides, origin="pdspan up")
    check_mode(settings)
    if settings.tls.enabled:
        raise ConfigError("pdspan up serves plain text on loopback; TLS belongs in a cluster file")
    return settings


def served_name(model: str) -> str:
    """What clients call it: a hub id or a known name as it is, a directory by its last part."""
    return Path(model).expanduser().resolve().name if Path(model).expanduser().is_dir() else model


def threads_per_node(num_cores: int, options: UpOptions) -> int:
    """Twice an even share of the cores, at most all: prefill and decode of a request take turns.

    Threads that wait sleep (``pdspan.node``), so two nodes with all of two cores each lose a tenth
    when both compute, and are 1.3 to 1.8 times as fast as with one thread when one does.
    """
    num_nodes = options.num_prefill + options.num_decode
    return max(1, min(num_cores, 2 * num_cores // num_nodes))


def num_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_port_free(port: int) -> None:
    """Raises ConfigError when something listens on ``port`` already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {HOST}:{port}: {error.strerror}; choose another with --port"
            ) from None


def _nodes(options: UpOptions) -> Iterator[dict[str, Any]]:
    """Each prefill and decode node also serves its metrics, on a port of its own."""
    ports = iter(_free_ports(1 + 2 * (options.num_prefill + options.num_decode)))
    router_port = options.port or next(ports)
    yield {"name": "router", "role": NodeRole.ROUTER, "bind": f"{HOST}:{router_port}"}
    counts = {NodeRole.PREFILL: options.num_prefill, NodeRole.DECODE: options.num_decode}
    for role, count in counts.items():
        for number in range(1, count + 1):
            yield {
                "name": f"{role}-{number}",
                "role": role,
                "bind": f"{HOST}:{next(ports)}",
                "metrics": f"{HOST}:{next(ports)}",
            }


def _free_ports(count: int) -> list[int]:
    """Different ports: all are held open until all are known."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:
            held.bind((HOST, 0))
        return [held.getsockname()[1] for held in sockets]
