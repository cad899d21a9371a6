"""What ``pdspan up`` says when requests can be served: for a person, or for a program."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from pdcore.cluster import NodeRole
from pdcore.settings import ClusterSettings
from pdcore.version import __version__
from pdspan.child import Child

QUESTION = "What is the capital of France?"


def router_url(settings: ClusterSettings) -> str:
    (router,) = settings.nodes_of(NodeRole.ROUTER)
    return f"http://{router.address}"


def ready_text(
    settings: ClusterSettings, children: Sequence[Child], run_dir: Path, seconds: float
) -> str:
    """The URL, where the logs are, and a command that works when it is copied."""
    num_prefill, num_decode = (
        len(settings.nodes_of(role)) for role in (NodeRole.PREFILL, NodeRole.DECODE)
    )
    cluster = f"{num_prefill} prefill, {num_decode} decode" if num_prefill else "colocated"
    return "\n".join(
        (
            f"pdspan {__version__} serves {settings.model.served_name} ({cluster}) at "
            f"{router_url(settings)}, ready after {seconds:.1f} s",
            "",
            *(f"  {child.node.name:<10} {child.log_path}" for child in children),
            f"  {'settings':<10} {run_dir / 'cluster.toml'}",
            f"  {'metrics':<10} {' '.join(_metrics_urls(settings))}",
            "",
            "Try it, or stop it with Ctrl-C:",
            "",
            f"  {curl_line(settings)}",
            "",
        )
    )


def _metrics_urls(settings: ClusterSettings) -> list[str]:
    addresses = (node.metrics or node.address for node in settings.nodes)
    return [f"http://{address}/metrics" for address in addresses]


def ready_json(
    settings: ClusterSettings, children: Sequence[Child], run_dir: Path, seconds: float
) -> str:
    """One line. ``nodes`` have name, role, pid, address, metrics, log."""
    nodes = [
        {
            "name": child.node.name,
            "role": child.node.role,
            "pid": child.pid,
            "address": child.node.address,
            "metrics": child.node.metrics,
            "log": str(child.log_path),
        }
        for child in children
    ]
    return json.dumps(
        {
            "url": router_url(settings),
            "model": settings.model.served_name,
            "ready_s": round(seconds, 3),
            "cluster_file": str(run_dir / "cluster.toml"),
            "nodes": nodes,
        }
    )


def curl_line(settings: ClusterSettings) -> str:
    body = {
        "model": settings.model.served_name,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 32,
    }
    return (
        f"curl {router_url(settings)}/v1/chat/completions "
        f"-H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    )
