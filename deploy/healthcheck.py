"""Asks one node of a cluster whether it takes work: for containers and supervisors.

    python healthcheck.py [CLUSTER_FILE NODE_NAME]

The arguments default to ``$PDSPAN_CLUSTER`` and ``$PDSPAN_NODE``. Exit status 0: it does; 1: it
does not, or does not answer; 2: the cluster file is wrong. A prefill or decode node is asked
through the gRPC health service, a router through ``/health``, both at the advertised address (which
is what a certificate names), with the cluster's TLS settings. A draining node takes no work.
"""

import asyncio
import os
import ssl
import sys
from pathlib import Path

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pdcore.cluster import NodeRole
from pdcore.errors import ConfigError
from pdcore.rpc import open_channel
from pdcore.settings import NodeSettings, TlsSettings, load_cluster

TIMEOUT_S = 3.0


def main(arguments: list[str]) -> int:
    try:
        cluster_file, node_name = arguments or (
            os.environ["PDSPAN_CLUSTER"],
            os.environ["PDSPAN_NODE"],
        )
    except (KeyError, ValueError):
        print(
            "healthcheck: give a cluster file and a node's name, or set PDSPAN_CLUSTER and"
            " PDSPAN_NODE",
            file=sys.stderr,
        )
        return 2
    try:
        settings = load_cluster(Path(cluster_file))
        answer = asyncio.run(ask(settings.node(node_name), settings.tls))
    except ConfigError as error:
        print(f"healthcheck: {error}", file=sys.stderr)
        return 2
    print(f"{node_name}: {answer or 'takes work'}")
    return 1 if answer else 0


async def ask(node: NodeSettings, tls: TlsSettings) -> str | None:
    """Why the node takes no work, or None when it does."""
    if node.role is NodeRole.ROUTER:
        return await _ask_router(node, tls)
    try:
        async with open_channel(node.address, tls) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            reply = await stub.Check(  # type: ignore[attr-defined]
                health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S
            )
    except grpc.aio.AioRpcError as error:
        return f"{node.address}: {error.code().name}: {error.details()}"
    serving = reply.status == health_pb2.HealthCheckResponse.SERVING
    return None if serving else "does not take work now"


async def _ask_router(node: NodeSettings, tls: TlsSettings) -> str | None:
    scheme = "https" if tls.enabled else "http"
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.mutual and tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    try:
        async with httpx.AsyncClient(verify=context, trust_env=False, timeout=TIMEOUT_S) as client:
            reply = await client.get(f"{scheme}://{node.address}/health")
    except httpx.HTTPError as error:
        return f"{node.address}: {type(error).__name__}: {error}"
    return None if reply.is_success else f"{reply.status_code}: {reply.text}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
