"""A receiver behind a relay and a pair with it, on loopback, with bytearrays for KV memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from kvtransfer.channels import Pairs
from kvtransfer.limits import limits_for
from kvtransfer.messages import Handoff
from kvtransfer.pair import Pair
from kvtransfer.receiver import KvReceiver
from kvtransfer.sender import KvSender, OutgoingTransfer
from page_memory import RECEIVER, SENDER, PageMemory, Target
from pdcore.cluster import Epoch
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout
from pdcore.rpc import new_server
from pdcore.settings import TlsSettings, TransferSettings
from pdwire.v1.generation_pb2 import TransferReport
from tcp_relay import TcpRelay, tcp_relay

# 16 KiB a layer, 64 KiB a page, 4 MiB a transfer.
LAYOUT = KvLayout("m", num_layers=4, num_kv_heads=2, head_dim=128, page_tokens=16, dtype="bfloat16")
NUM_PAGES = 64
NUM_TOKENS = NUM_PAGES * LAYOUT.page_tokens - 5
SETTINGS = TransferSettings(
    frame_bytes=256 * 1024,
    window_bytes=1024 * 1024,
    credit_bytes=2 * 1024 * 1024,
    stripes=3,
    park_s=0.3,
    resume_s=1.5,
    stall_s=3.0,
)
SENDER_PAGES = list(range(NUM_PAGES))
RECEIVER_PAGES = list(range(NUM_PAGES, 0, -1))  # elsewhere, and in another order


@dataclass
class Wire:
    """A receiver behind a relay, and a pair with it."""

    pairs: Pairs
    pair: Pair
    receiver: KvReceiver
    relay: TcpRelay
    source: PageMemory
    sink: PageMemory
    settings: TransferSettings

    def sender(self, name: str, mode: str = "striped", epoch: Epoch = RECEIVER.epoch) -> KvSender:
        outgoing = OutgoingTransfer(TransferId(name), epoch, SENDER_PAGES, NUM_TOKENS)
        limits = limits_for(mode, self.settings, LAYOUT)
        return KvSender(self.pair, self.source, outgoing, limits, self.settings)

    async def receive(self, name: str) -> Handoff:
        target = Target(NUM_TOKENS, RECEIVER_PAGES)
        async with self.receiver.expect(TransferId(name), target) as incoming:
            handoff = await incoming.committed()
            assert self.sink.pages(RECEIVER_PAGES) == self.source.pages(SENDER_PAGES)
            return handoff

    def assert_balanced(self) -> None:
        assert self.pair.credit.in_flight_bytes == 0
        assert self.pair.credit.next_in_line() is None


@asynccontextmanager
async def serving(receiver: KvReceiver) -> AsyncIterator[int]:
    server = new_server()
    receiver.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        receiver.close()
        await server.stop(0.5)


@asynccontextmanager
async def wired(
    settings: TransferSettings = SETTINGS, layout: KvLayout = LAYOUT, delay_s: float = 0.0
) -> AsyncIterator[Wire]:
    """``layout`` is the sender's; ``delay_s`` is added to every message, each way."""
    source = PageMemory(LAYOUT, NUM_PAGES, seed=1)
    sink = PageMemory(LAYOUT, NUM_PAGES + 1)
    receiver = KvReceiver(RECEIVER, LAYOUT, sink, settings)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(receiver))
        relay = await stack.enter_async_context(tcp_relay(port, delay_s))
        pairs = await stack.enter_async_context(Pairs(SENDER, layout, settings, TlsSettings()))
        pair = pairs.open(f"127.0.0.1:{relay.port}")
        yield Wire(pairs, pair, receiver, relay, source, sink, settings)


async def produce(sender: KvSender, *, pause_s: float = 0.001) -> None:
    """Prefill in eight chunks, then the handoff."""
    for chunk in range(1, 9):
        await asyncio.sleep(pause_s)
        sender.pages_ready(chunk * NUM_PAGES // 8)
    sender.hand_off((5, 6), 16)


async def transfer(wire: Wire, name: str, mode: str = "striped") -> TransferReport:
    sender = wire.sender(name, mode)
    async with asyncio.TaskGroup() as tasks:
        received = tasks.create_task(wire.receive(name))
        report = tasks.create_task(sender.run())
        tasks.create_task(produce(sender))
    assert received.result() == Handoff((5, 6), 16, NUM_PAGES * LAYOUT.page_bytes)
    return report.result()
