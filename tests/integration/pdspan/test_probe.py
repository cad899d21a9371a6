"""``pdspan probe`` as a user runs it, against a receiver in this process, and what else listens."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvtransfer.limits import MODES
from kvtransfer.receiver import KvReceiver
from page_memory import RECEIVER, PageMemory
from pdcore.cluster import Epoch, NodeInfo, NodeLoad, NodeName, NodeRole
from pdcore.rpc import bind_server, new_server
from pdcore.settings import NodeSettings, TlsSettings, TransferSettings
from pdcore.status import StatusService
from serving import running_cluster
from wired_pair import LAYOUT

MIB = 2**20
MAKE_CERTS = Path(__file__).parents[3] / "deploy/make_certs.sh"
QUICK = ("--bytes", "4MiB", "--seconds", "2", "--connections", "2")


@dataclass(frozen=True)
class Outcome:
    status: int
    output: str
    errors: str

    @property
    def error(self) -> str:
        """The one line that says what is wrong; progress comes before it."""
        (line,) = [line for line in self.errors.splitlines() if line.startswith("pdspan: error:")]
        assert "Traceback" not in self.errors
        return line

    @property
    def paths(self) -> list[dict[str, Any]]:
        paths: list[dict[str, Any]] = json.loads(self.output)["paths"]
        return paths


class Idle:
    def load(self) -> NodeLoad:
        return NodeLoad()

    def peers(self) -> frozenset[tuple[NodeName, Epoch]]:
        return frozenset()


async def probe(*arguments: str | Path) -> Outcome:
    command = [sys.executable, "-m", "pdspan", "probe", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(*command, **pipes)
    output, errors = await process.communicate()
    assert process.returncode is not None
    return Outcome(process.returncode, output.decode(), errors.decode())


@asynccontextmanager
async def node(
    role: NodeRole = NodeRole.DECODE,
    transfer: TransferSettings | None = None,
    tls: TlsSettings | None = None,
    port: int = 0,
) -> AsyncIterator[str]:
    """A receiver that says of itself what a decode node says; its address."""
    server = new_server()
    receiver = KvReceiver(RECEIVER, LAYOUT, PageMemory(LAYOUT, 1), transfer or TransferSettings())
    receiver.add_to(server)
    info = NodeInfo(RECEIVER.node, role, "", RECEIVER.epoch, LAYOUT, "tiny-model", 4096, "0")
    status = StatusService(info, Idle())
    status.add_to(server)
    if tls is None:
        port = server.add_insecure_port(f"127.0.0.1:{port}")
    else:
        bind_server(server, NodeSettings("decode-0", role, f"127.0.0.1:{port}"), tls)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        status.close()
        receiver.close()
        await server.stop(0.5)


@asynccontextmanager
async def listener(answer: Callable[[bytes], bytes]) -> AsyncIterator[str]:
    """Answers the first bytes of each connection, and closes it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(await reader.read(1000)))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_person_reads_path_modes_and_what_pays() -> None:
    async with node() as address:
        outcome = await probe(
            address, *QUICK, "--prefill-tokens-per-s", "4000", "--decode-tokens-per-s", "50"
        )
    assert outcome.status == 0, outcome.errors
    assert outcome.output.startswith(
        f"decode-0 at {address}, seen from this machine: tiny-model, 64 KiB pages of 16 tokens\n"
    )
    lines = outcome.output.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ") and "_bound" in line] == [
        *MODES
    ]
    assert "predicted for a prompt of 2048 tokens, 8 MiB of KV" in lines
    assert any(line.startswith("  shipping gives the first token earlier") for line in lines)
    assert "  prefill at 4000 tokens/s (given), in chunks of 512 tokens" in lines
    assert "rate of 2 connections: done" in outcome.errors


async def test_a_program_reads_the_same() -> None:
    async with node() as address:
        outcome = await probe(address, *QUICK, "--json", "--tokens", "100")
    assert outcome.status == 0, outcome.errors
    (path,) = outcome.paths
    assert (path["target"], path["node"], path["model"]) == (address, "decode-0", "tiny-model")
    assert 0 < path["rtt_min_s"] <= path["rtt_median_s"] < 5
    assert [rate["num_connections"] for rate in path["rates"]] == [1, 2]
    for rate in path["rates"]:
        assert 0 < rate["sent_bytes"] <= 4 * MIB
        assert rate["bytes_per_s"] > 0
    assert [mode["mode"] for mode in path["modes"]] == [*MODES]
    assert path["tcp"]["send_buffer_bytes"] and path["tcp"]["receive_buffer_bytes"]
    assert path["page_bytes"] == LAYOUT.page_bytes
    assert path["shipping"] is None and path["prefill_tokens_per_s"] is None


async def test_a_rate_that_is_given_sends_nothing() -> None:
    """The node would refuse any byte."""
    async with node(transfer=TransferSettings(accept_warmup_bytes=0)) as address:
        outcome = await probe(address, "--rate", "1gbit", "--json")
        refused = await probe(address, *QUICK)
    assert outcome.status == 0, outcome.errors
    (path,) = outcome.paths
    assert {(rate["bytes_per_s"], rate["sent_bytes"]) for rate in path["rates"]} == {(125e6, 0)}
    by_mode = {mode["mode"]: mode for mode in path["modes"]}
    assert by_mode["auto"]["transfer_s"] == pytest.approx(
        path["rtt_min_s"] + 8 * MIB / 125e6, rel=0.1
    )
    assert refused.status == 1
    assert refused.error.endswith("decode-0 takes no more warm-up bytes for now")


async def test_pages_of_another_model() -> None:
    async with node() as address:
        arguments = ("--rate", "1gbit", "--page-bytes", "2MiB", "--json", "--tokens", "32000")
        outcome = await probe(address, *arguments)
        odd = await probe(address, "--rate", "1gbit", "--page-bytes", "2000001B")
    (path,) = outcome.paths
    assert (path["page_bytes"], path["page_tokens"]) == (2 * MIB, 16)
    auto = path["modes"][-1]
    assert auto["transfer_s"] == pytest.approx(2000 * 2 * MIB / 125e6, rel=0.1)
    assert odd.status == 2
    assert "--page-bytes must be a multiple of" in odd.error


async def test_what_is_no_decode_node_is_told_in_one_line() -> None:
    def http(_: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"

    async with AsyncExitStack() as stack:
        prefill = await stack.enter_async_context(node(NodeRole.PREFILL))
        router = await stack.enter_async_context(listener(http))
        other = await stack.enter_async_context(listener(lambda _: b"SSH-2.0\r\n"))
        grpc_only = new_server()
        port = grpc_only.add_insecure_port("127.0.0.1:0")
        await grpc_only.start()
        outcomes = [
            await probe(address) for address in (prefill, router, other, f"127.0.0.1:{port}")
        ]
        await grpc_only.stop(0)
    nobody = await probe(other)
    says = [outcome.error for outcome in (*outcomes, nobody)]
    assert f"{prefill} is the prefill node decode-0: give the address of a decode node" in says[0]
    assert f"{router} speaks HTTP, as a router does" in says[1]
    assert f"something listens at {other}, but not for plain gRPC" in says[2]
    assert f"127.0.0.1:{port} is a gRPC server, but no node of pdspan" in says[3]
    assert f"nothing answers at {other}" in says[4]
    assert [outcome.status for outcome in (*outcomes, nobody)] == [2, 2, 1, 2, 1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "say what to probe"),
        (("127.0.0.1:1", "--cluster", "c.toml"), "say what to probe"),
        (("nonsense",), "'nonsense' is not host:port"),
        (("127.0.0.1:1", "--rate", "fast"), "'fast' is not a rate, such as 1gbit"),
        (("127.0.0.1:1", "--bytes", "1KiB"), "--bytes 1024: a rate takes at least"),
        (("127.0.0.1:1", "--seconds", "-1"), "--seconds -1: must be more than 0"),
        (("127.0.0.1:1", "--prefill-tokens-per-s", "0"), "--prefill-tokens-per-s 0: must be"),
        (("127.0.0.1:1", "--cert", "x.crt"), "--cert and --key go together"),
        (("127.0.0.1:1", "--ca", "/nowhere/ca.crt"), "tls.ca: cannot read /nowhere/ca.crt"),
        (("127.0.0.1:1", "--set", "transfer.mode=fast"), "transfer.mode is 'fast'; one of"),
        (("--cluster", "/nowhere.toml"), "no cluster file at /nowhere.toml"),
    ],
)
async def test_wrong_usage_is_one_line(arguments: tuple[str, ...], says: str) -> None:
    outcome = await probe(*arguments)
    assert outcome.status == 2
    assert says in outcome.error


async def test_a_prompt_that_the_node_cannot_hold() -> None:
    async with node() as address:
        outcome = await probe(address, "--rate", "1gbit", "--tokens", "5000")
    assert outcome.status == 2
    assert "--tokens 5000: decode-0 holds at most 4096 tokens" in outcome.error


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    subprocess.run([MAKE_CERTS, tmp_path, "host", "127.0.0.1"], check=True, capture_output=True)
    return tmp_path


async def test_over_tls(certificates: Path, unused_tcp_port: int) -> None:
    ca, cert, key = (str(certificates / name) for name in ("ca.crt", "host.crt", "host.key"))
    tls = TlsSettings(ca=ca, cert=cert, key=key, mutual=True)
    async with node(tls=tls, port=unused_tcp_port) as address:
        known = await probe(address, "--rate", "1gbit", "--ca", ca, "--cert", cert, "--key", key)
        plain = await probe(address, "--rate", "1gbit")
        stranger = await probe(address, "--rate", "1gbit", "--ca", ca)
    assert known.status == 0, known.errors
    assert "if it speaks TLS, say --ca FILE" in plain.error
    assert "does not answer over TLS" in stranger.error


async def test_every_decode_node_of_a_cluster_file(tmp_path: Path, unused_tcp_port: int) -> None:
    async with node() as address:
        nobody = f"127.0.0.1:{unused_tcp_port}"
        file = tmp_path / "cluster.toml"
        file.write_text(
            f"""
            transfer.mode = "coalesced"
            nodes = [
              {{ name = "decode-0", role = "decode", bind = "{address}" }},
              {{ name = "decode-1", role = "decode", bind = "{nobody}" }},
              {{ name = "prefill", role = "prefill", bind = "{nobody}", metrics = "{nobody}" }},
            ]
            """
        )
        outcome = await probe("--cluster", file, "--rate", "1gbit", "--json")
        empty = await probe("--cluster", file, "--set", "nodes=[]")
    assert outcome.status == 1
    assert f"nothing answers at {nobody}" in outcome.error
    assert [path["target"] for path in outcome.paths] == [address]
    assert (empty.status, "has no decode node" in empty.error) == (2, True)


@asynccontextmanager
async def counting(num_tokens: int, seconds: float) -> AsyncIterator[str]:
    """The metrics of a prefill node; the address."""
    body = f"pdspan_prompt_tokens_total {num_tokens}\npdspan_step_seconds_sum {seconds}\n"
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    async with listener(lambda _: (head + body).encode()) as address:
        yield address


@pytest.mark.parametrize(
    ("num_tokens", "rate", "says"),
    [
        (8, None, "rate of prefill unknown: only 8 prompt tokens computed so far"),
        (1023, None, "rate of prefill unknown: only 1023 prompt tokens computed so far"),
        (
            1024,
            10240.0,
            "prefill at 10240 tokens/s (counted by the cluster's prefill nodes so far)",
        ),
        (0, None, "rate of prefill unknown: no prefill node has counted a prompt"),
    ],
)
async def test_a_rate_of_prefill_takes_a_thousand_tokens(
    tmp_path: Path, num_tokens: int, rate: float | None, says: str
) -> None:
    """Of two short requests it is that of a node that has just been started."""
    async with node() as address, counting(num_tokens, 0.1) as metrics:
        file = tmp_path / "cluster.toml"
        file.write_text(
            f"""
            nodes = [
              {{ name = "decode-0", role = "decode", bind = "{address}" }},
              {{ name = "prefill", role = "prefill", bind = "127.0.0.1:1", metrics = "{metrics}" }},
            ]
            """
        )
        outcome = await probe("--cluster", file, "--rate", "1gbit", "--json")
    assert outcome.status == 0, outcome.errors
    (path,) = outcome.paths
    assert path["prefill_tokens_per_s"] == rate
    assert any(says in text for text in path["assumptions"])
    assert (path["shipping"] is None) == (rate is None)
    exposed = {mode["mode"]: mode["exposed_s"] for mode in path["modes"]}
    assert (exposed["auto"] is None) == (rate is None)


@pytest.mark.parametrize(
    ("decode", "reason"),
    [
        ("4000", "  the decode node prefills as fast as the prefill node"),
        ("3000", "  the path carries less than the decode node's 3000 tokens/s"),
        ("1953", "  even of 4096 tokens `auto` leaves "),
    ],
)
async def test_a_person_reads_why_shipping_does_not_pay(decode: str, reason: str) -> None:
    """At 64 Mbit/s a path carries the 4 KiB pages of 1953.1 tokens/s."""
    async with node() as address:
        given = ("--prefill-tokens-per-s", "4000", "--decode-tokens-per-s", decode)
        outcome = await probe(address, "--rate", "64mbit", *given)
    lines = outcome.output.splitlines()
    index = lines.index("  shipping gives no prompt its first token earlier:")
    assert lines[index + 1].startswith(reason)
    assert "rate        64 Mbit/s by 1 connection: given, not measured" in lines


@pytest.mark.model
async def test_a_running_cluster_tells_how_fast_it_prefills() -> None:
    with running_cluster("--set", "engine.kv_memory_bytes=100_000_000") as cluster:
        file = Path(cluster.nodes[0].log).parent / "cluster.toml"
        cluster.complete(prompt="Once upon a time " * 300, max_tokens=1)
        outcome = await probe("--cluster", file, *QUICK, "--json")
        router = await probe(cluster.node("router").address)
        busy = cluster.complete(prompt="The capital of France is", max_tokens=1)
    assert outcome.status == 0, outcome.errors
    (path,) = outcome.paths
    assert path["node"] == cluster.node("decode").name
    assert path["prefill_tokens_per_s"] > 0
    assert path["shipping"]["from_tokens"] is None, "both prefill equally fast"
    assert any("counted by the cluster's prefill nodes" in text for text in path["assumptions"])
    assert "speaks HTTP, as a router does" in router.error
    assert busy["choices"], "and it still serves"
