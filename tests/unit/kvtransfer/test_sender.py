"""The sender against a channel that answers at once."""

import asyncio

import grpc

from kvtransfer.changes import Changes
from kvtransfer.framing import decode_push, encode_reply
from kvtransfer.handshake import PROTOCOL
from kvtransfer.limits import limits_for
from kvtransfer.messages import Handoff, Reply, Standing
from kvtransfer.pair import Pair
from kvtransfer.sender import KvSender, OutgoingTransfer
from page_memory import RECEIVER, SENDER, TINY, PageMemory
from pdcore.generation import TransferId
from pdcore.settings import TransferSettings

CREDIT_BYTES = 100 * TINY.page_bytes
SETTINGS = TransferSettings(frame_bytes=TINY.page_bytes)


class EagerChannel:
    """The dialer, its channel and its stream. The commit and the end come in one go, after the
    handoff."""

    address = "127.0.0.1:7001"

    def __init__(self, num_frames: int) -> None:
        self.num_streams = 0
        nbytes = num_frames * TINY.page_bytes
        self._replies = [
            Reply(0, 0, 0, CREDIT_BYTES),
            Reply(0, num_frames, nbytes, CREDIT_BYTES, committed=True),
        ]
        self._handed_off = asyncio.Event()

    def dial(self) -> "EagerChannel":
        return self

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return grpc.ChannelConnectivity.READY

    def stream_stream(self, _method: str) -> "EagerChannel":
        return self

    def __call__(self, *, wait_for_ready: bool) -> "EagerChannel":
        self.num_streams += 1
        return self

    async def write(self, message: bytes) -> None:
        if isinstance(decode_push(message).body, Handoff):
            self._handed_off.set()

    async def read(self) -> object:
        if len(self._replies) == 1:
            await self._handed_off.wait()
        return encode_reply(self._replies.pop(0)) if self._replies else grpc.aio.EOF

    def cancel(self) -> None:
        """A stream may be cancelled after its end."""


async def test_no_stream_is_opened_after_the_commit() -> None:
    channel = EagerChannel(num_frames=2)
    pair = Pair(channel, SENDER, TINY, SETTINGS, Changes())  # type: ignore[arg-type]
    pair.standing = Standing(RECEIVER, TINY, PROTOCOL, CREDIT_BYTES)
    pair.credit.grant(CREDIT_BYTES)
    outgoing = OutgoingTransfer(TransferId("t"), RECEIVER.epoch, range(2), 8)
    limits = limits_for("pipelined", SETTINGS, TINY)
    sender = KvSender(pair, PageMemory(TINY, 2), outgoing, limits, SETTINGS)
    sender.pages_ready(2)
    sender.hand_off((7,), 0)
    report = await sender.run()
    assert channel.num_streams == report.attempts == 1
