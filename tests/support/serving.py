"""A real cluster for tests: ``pdspan up`` as a user starts it, and ways to look into its nodes.

Requests go over HTTP. The nodes' page counts come from ``Node.Watch``, as the router sees them.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from pdcore.cluster import NodeLoad
from pdcore.rpc import open_channel
from pdcore.settings import TlsSettings
from pdcore.wire import status_from_proto
from pdwire.v1 import node_pb2, node_pb2_grpc

START_S = 240
REQUEST_S = 120


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    role: str
    pid: int
    address: str
    log: str


class Cluster:
    """One running ``pdspan up``."""

    def __init__(self, process: subprocess.Popen[str], ready: dict[str, Any]) -> None:
        self.process = process
        self.url: str = ready["url"]
        self.model: str = ready["model"]
        self.nodes = [
            Node(node["name"], node["role"], node["pid"], node["address"], node["log"])
            for node in ready["nodes"]
        ]
        self.http = httpx.Client(base_url=self.url, timeout=REQUEST_S, trust_env=False)

    def node(self, role: str) -> Node:
        return next(node for node in self.nodes if node.role == role)

    def complete(self, **fields: Any) -> dict[str, Any]:
        """POST /v1/completions; greedy unless said otherwise. The status must be 200."""
        response = self.post("/v1/completions", **fields)
        assert response.status_code == httpx.codes.OK, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def post(self, path: str, **fields: Any) -> httpx.Response:
        return self.http.post(path, json={"model": self.model, "temperature": 0, **fields})

    def loads(self) -> dict[str, NodeLoad]:
        """Every prefill and decode node's load, now."""
        return asyncio.run(self._loads())

    def assert_no_page_in_use(
        self, roles: Sequence[str] = ("prefill", "decode"), within_s: float = 15
    ) -> None:
        """The pools come to rest: nothing reserved, used, draining or promised; cached is fine."""
        asyncio.run(self._at_rest(roles, within_s))

    async def _loads(self, roles: Sequence[str] = ("prefill", "decode")) -> dict[str, NodeLoad]:
        nodes = [node for node in self.nodes if node.role in roles]
        loads = await asyncio.gather(*(_load(node.address) for node in nodes))
        return {node.name: load for node, load in zip(nodes, loads, strict=True)}

    async def _at_rest(self, roles: Sequence[str], within_s: float) -> None:
        end_s = time.monotonic() + within_s
        while not all(map(_is_at_rest, (loads := await self._loads(roles)).values())):
            assert time.monotonic() < end_s, f"pages are still in use: {loads}"
            await asyncio.sleep(0.05)


@contextmanager
def running_cluster(*arguments: str) -> Iterator[Cluster]:
    """``pdspan up --port 0 --json ARGUMENTS``, stopped with SIGINT at the end."""
    command = [sys.executable, "-m", "pdspan", "up", "--port", "0", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Cluster(process, _ready(process, command))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _ready(process: subprocess.Popen[str], command: Sequence[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"{' '.join(command)} ended with status {process.wait()}"
    ready: dict[str, Any] = json.loads(line)
    return ready


async def _load(address: str) -> NodeLoad:
    async with open_channel(address, TlsSettings()) as channel:
        async for status in node_pb2_grpc.NodeStub(channel).Watch(node_pb2.WatchRequest()):
            return status_from_proto(status).load
    raise AssertionError(f"{address} said nothing")


def _is_at_rest(load: NodeLoad) -> bool:
    return not (
        load.pages_used
        or load.pages_reserved
        or load.pages_draining
        or load.pages_promised
        or load.num_queued
        or load.num_running
    )


def stop_hard(node: Node) -> None:
    """SIGKILL: the node gets no chance to say anything."""
    os.kill(node.pid, signal.SIGKILL)
