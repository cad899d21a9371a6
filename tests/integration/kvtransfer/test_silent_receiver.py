"""A receiver that is there and says nothing: what waits for it ends by name, not never."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from kvtransfer.channels import Pairs
from kvtransfer.framing import decode_push, encode_reply, encode_standing
from kvtransfer.handshake import PROTOCOL
from kvtransfer.limits import limits_for
from kvtransfer.messages import Reply, Standing
from kvtransfer.pair import Pair
from kvtransfer.receiver import SERVICE
from kvtransfer.sender import KvSender, OutgoingTransfer
from page_memory import RECEIVER, SENDER, TINY, PageMemory
from pdcore.errors import TransferStalled
from pdcore.generation import TransferId
from pdcore.rpc import new_server
from pdcore.settings import TlsSettings, TransferSettings
from waiting import raises, until

PAGE = TINY.page_bytes
SETTINGS = TransferSettings(frame_bytes=PAGE, credit_bytes=PAGE, stall_s=0.5)  # a frame at a time


class SilentReceiver:
    """Answers every opening, and as many frames as ``acknowledge`` was called."""

    def __init__(self) -> None:
        self.num_frames = 0
        self.num_pings = 0
        self._acknowledgements = asyncio.Semaphore(0)

    def acknowledge(self) -> None:
        self._acknowledgements.release()

    async def attach(self, _: bytes, context: grpc.aio.ServicerContext) -> None:
        await context.write(encode_standing(Standing(RECEIVER, TINY, PROTOCOL, PAGE)))
        await asyncio.get_running_loop().create_future()

    async def ping(self, _: bytes, context: grpc.aio.ServicerContext) -> None:
        self.num_pings += 1
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")

    async def push(self, _: object, context: grpc.aio.ServicerContext) -> None:
        attempt, num_acked = decode_push(await context.read()).attempt, 0
        await context.write(encode_reply(Reply(attempt, 0, 0, PAGE)))
        while await context.read() is not grpc.aio.EOF:
            self.num_frames += 1
            await self._acknowledgements.acquire()
            num_acked += 1
            await context.write(encode_reply(Reply(attempt, num_acked, num_acked * PAGE, PAGE)))


@dataclass
class Quiet:
    receiver: SilentReceiver
    pair: Pair

    def sender(self, name: str) -> KvSender:
        outgoing = OutgoingTransfer(TransferId(name), RECEIVER.epoch, range(3), 12)
        limits = limits_for("sequential", SETTINGS, TINY)
        sender = KvSender(self.pair, PageMemory(TINY, 3), outgoing, limits, SETTINGS)
        sender.pages_ready(3)
        return sender


@asynccontextmanager
async def quiet() -> AsyncIterator[Quiet]:
    receiver, server = SilentReceiver(), new_server()
    handlers = {
        "Attach": grpc.unary_stream_rpc_method_handler(receiver.attach),
        "Push": grpc.stream_stream_rpc_method_handler(receiver.push),
        "Ping": grpc.unary_unary_rpc_method_handler(receiver.ping),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with Pairs(SENDER, TINY, SETTINGS, TlsSettings()) as pairs:
            yield Quiet(receiver, pairs.open(f"127.0.0.1:{port}"))
    finally:
        await server.stop(0)


async def test_a_transfer_that_waited_for_credit_stalls_once_it_is_its_turn() -> None:
    async with quiet() as link, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(raises(TransferStalled, link.sender("first").run()))
        await until(lambda: link.receiver.num_frames == 1)
        second = tasks.create_task(raises(TransferStalled, link.sender("second").run()))
        await until(lambda: link.pair.credit.next_in_line() == "second")
        link.receiver.acknowledge()
        await until(lambda: link.receiver.num_frames == 2)
        assert link.pair.credit.next_in_line() == "first"
        async with asyncio.timeout(5):
            assert "nothing was acknowledged for 0.5 s" in str(await second)
            assert "nothing was acknowledged for 0.5 s" in str(await first)


async def test_a_ping_that_is_refused_is_not_repeated_at_once() -> None:
    async with quiet() as link:
        await link.pair.attached(RECEIVER.epoch, 5.0)
        await until(lambda: link.receiver.num_pings > 0)
        await asyncio.sleep(0.3)
        assert link.receiver.num_pings == 1
        assert link.pair.path.rtt_s is None
