"""The two ends of a transfer for ``measure_tls.py``: a sending process and its receiving child.

Both see their pages in a bytearray, so nothing but the transfer takes time. They are joined by
three pairs, one for each kind of channel, whose connections stay open. Standard input and output of
the child carry what is not measured: which transfer comes next, and what it took there.
"""

import asyncio
import json
import random
import resource
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import grpc
import xxhash

from kvtransfer.channels import Pairs
from kvtransfer.limits import limits_for
from kvtransfer.messages import Identity
from kvtransfer.pair import Pair
from kvtransfer.receiver import KvReceiver
from kvtransfer.sender import KvSender, OutgoingTransfer
from pdcore.cluster import Epoch, NodeName, NodeRole, new_epoch
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout
from pdcore.rpc import bind_server, new_server
from pdcore.settings import NodeSettings, TlsSettings, TransferSettings

KINDS = ("plain", "tls", "mutual")
# Llama-3-8B's: 2 MiB a page, so one page fills a frame.
LAYOUT = KvLayout("measure-tls", 32, 8, 128, 16, "bfloat16")
SETTINGS = TransferSettings()


@dataclass(frozen=True, slots=True)
class Sample:
    kind: str
    gbit_per_s: float
    sender_cpu_s_per_gb: float
    receiver_cpu_s_per_gb: float


class PageMemory:
    """Pages in a bytearray, as both halves of a transfer see them; also the receiver's promise."""

    def __init__(self, num_pages: int) -> None:
        self._memory = memoryview(bytearray(num_pages * LAYOUT.page_bytes))
        self.num_tokens = num_pages * LAYOUT.page_tokens

    def fill(self) -> None:
        for page in range(self.num_tokens // LAYOUT.page_tokens):
            data = random.Random(page).randbytes(LAYOUT.page_bytes)
            self.write([page], 0, LAYOUT.num_layers, memoryview(data))

    def digest(self) -> str:
        return xxhash.xxh3_64_hexdigest(self._memory)

    def open(self, num_pages: int) -> Sequence[int]:
        return range(num_pages)

    def read(self, pages: Sequence[int], first_layer: int, num_layers: int) -> list[memoryview]:
        return [self._memory[self._span(page, first_layer, num_layers)] for page in pages]

    def write(
        self, pages: Sequence[int], first_layer: int, num_layers: int, data: memoryview
    ) -> None:
        size = num_layers * LAYOUT.layer_bytes
        for i, page in enumerate(pages):
            span = self._span(page, first_layer, num_layers)
            self._memory[span] = data[i * size : (i + 1) * size]

    def _span(self, page: int, first_layer: int, num_layers: int) -> slice:
        start = page * LAYOUT.page_bytes + first_layer * LAYOUT.layer_bytes
        return slice(start, start + num_layers * LAYOUT.layer_bytes)


def tls_settings(kind: str, directory: Path) -> TlsSettings:
    if kind == "plain":
        return TlsSettings()
    ca, cert, key = (str(directory / name) for name in ("ca.crt", "host.crt", "host.key"))
    return TlsSettings(ca, cert, key, mutual=kind == "mutual")


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Receiving:
    """The child. A line ``KIND ID`` on its standard input announces a transfer, the next line asks
    what it took; each is answered with a line of JSON."""

    def __init__(self, num_pages: int) -> None:
        self._memory = PageMemory(num_pages)
        self._identity = Identity(NodeName("receiver"), new_epoch())
        self._receivers: dict[str, KvReceiver] = {}

    async def run(self, directory: Path) -> None:
        """Until standard input ends."""
        addresses = {kind: free_address() for kind in KINDS}
        async with AsyncExitStack() as servers:
            for kind, address in addresses.items():
                server = await self._serve(kind, address, directory)
                servers.push_async_callback(server.stop, None)
            _say({"epoch": self._identity.epoch, "addresses": addresses})
            while line := await _next_line():
                kind, transfer_id = line.split()
                await self._receive(self._receivers[kind], TransferId(transfer_id))

    async def _serve(self, kind: str, address: str, directory: Path) -> grpc.aio.Server:
        receiver = KvReceiver(self._identity, LAYOUT, self._memory, SETTINGS)
        server = new_server()
        receiver.add_to(server)
        node = NodeSettings("receiver", NodeRole.DECODE, bind=address)
        bind_server(server, node, tls_settings(kind, directory))
        await server.start()
        self._receivers[kind] = receiver
        return server

    async def _receive(self, receiver: KvReceiver, transfer_id: TransferId) -> None:
        async with receiver.expect(transfer_id, self._memory) as incoming:
            before_s = cpu_s()
            _say({"announced": transfer_id})
            await incoming.committed()
            await _next_line()  # the sender has the commit's acknowledgement
            _say({"cpu_s": cpu_s() - before_s, "digest": self._memory.digest()})


def _say(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


async def _next_line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


class Sending:
    """The parent: one pair for each kind, one transfer at a time."""

    def __init__(self, num_pages: int, mode: str) -> None:
        self._memory = PageMemory(num_pages)
        self._memory.fill()
        self._num_pages = num_pages
        self._limits = limits_for(mode, SETTINGS, LAYOUT)
        self._identity = Identity(NodeName("sender"), new_epoch())

    async def run(self, directory: Path, num_repetitions: int) -> list[Sample]:
        arguments = ("--receive", str(directory), "--pages", str(self._num_pages))
        child = await asyncio.create_subprocess_exec(
            sys.executable, sys.argv[0], *arguments, stdin=PIPE, stdout=PIPE
        )
        talk = _Talk(child)
        hello = await talk.answer()
        epoch = Epoch(hello["epoch"])
        async with AsyncExitStack() as stack:
            pairs = {}
            for kind, address in hello["addresses"].items():
                opened = Pairs(self._identity, LAYOUT, SETTINGS, tls_settings(kind, directory))
                await stack.enter_async_context(opened)
                pairs[kind] = opened.open(address)
            samples = []
            for repetition in range(1 + num_repetitions):
                for kind in random.Random(repetition).sample(KINDS, len(KINDS)):
                    transfer_id = TransferId(f"{kind}-{repetition}")
                    sample = await self._send(pairs[kind], kind, transfer_id, epoch, talk)
                    samples += [sample] if repetition else []
        await talk.end()
        return samples

    async def _send(
        self, pair: Pair, kind: str, transfer_id: TransferId, epoch: Epoch, talk: "_Talk"
    ) -> Sample:
        await pair.attached(epoch, 10)
        await talk.ask(f"{kind} {transfer_id}")
        page_table = range(self._num_pages)
        outgoing = OutgoingTransfer(transfer_id, epoch, page_table, self._memory.num_tokens)
        cpu_before_s, before_s = cpu_s(), perf_counter()
        sender = KvSender(pair, self._memory, outgoing, self._limits, SETTINGS)
        sender.pages_ready(self._num_pages)
        sender.hand_off([1], 0)
        report = await sender.run()
        duration_s, sender_cpu_s = perf_counter() - before_s, cpu_s() - cpu_before_s
        received = await talk.ask("done")
        if received["digest"] != self._memory.digest():
            raise SystemExit(f"{transfer_id}: the receiver has other bytes than the sender")
        gb = report.page_bytes / 1e9
        return Sample(kind, 8 * gb / duration_s, sender_cpu_s / gb, received["cpu_s"] / gb)


class _Talk:
    """Lines to the child and back."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdin is not None and child.stdout is not None
        self._child, self._stdin, self._stdout = child, child.stdin, child.stdout

    async def ask(self, line: str) -> dict[str, Any]:
        self._stdin.write(f"{line}\n".encode())
        return await self.answer()

    async def answer(self) -> dict[str, Any]:
        line = await self._stdout.readline()
        if not line:
            raise SystemExit("the receiving process ended early; see its message above")
        return dict(json.loads(line))

    async def end(self) -> None:
        self._stdin.close()
        await self._child.wait()
