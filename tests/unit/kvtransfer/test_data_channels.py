"""Which connection a stream is put on."""

import asyncio
from pathlib import Path

import grpc
import pytest

from kvtransfer.data_channels import DataChannels, Dialer, PushStream
from kvtransfer.framing import encode_reply
from kvtransfer.messages import Reply
from pdcore.generation import TransferId
from pdcore.settings import TlsSettings


class QuietChannel:
    """A channel and its stream at once; ``replies`` are read as they come."""

    def __init__(self) -> None:
        self.state = grpc.ChannelConnectivity.READY
        self.num_attempts = 0
        self.num_streams = 0
        self.replies: asyncio.Queue[bytes] = asyncio.Queue()
        self.is_closed = False

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        self.num_attempts += try_to_connect
        return self.state

    def stream_stream(self, _method: str) -> "QuietChannel":
        return self

    def __call__(self, *, wait_for_ready: bool) -> "QuietChannel":
        self.num_streams += 1
        return self

    async def write(self, _message: bytes) -> None: ...

    async def read(self) -> object:
        return await self.replies.get()

    def cancel(self) -> None: ...

    async def close(self) -> None:
        self.is_closed = True


class Quiet:
    """Opens such channels, and remembers them."""

    address = "10.0.0.2:7001"

    def __init__(self) -> None:
        self.channels: list[QuietChannel] = []

    def dial(self) -> QuietChannel:
        self.channels.append(QuietChannel())
        return self.channels[-1]


class Desk:
    def __init__(self, num_open: int) -> None:
        self.dialer = Quiet()
        self.data = DataChannels(self.dialer)  # type: ignore[arg-type]
        self.data.open(num_open)

    def push(self, name: str) -> tuple[PushStream, int]:
        """A new stream, and the number of its connection."""
        before = [channel.num_streams for channel in self.dialer.channels]
        stream = self.data.open_push(TransferId(name), "decode-0")
        after = [channel.num_streams for channel in self.dialer.channels]
        before += [0] * (len(after) - len(before))
        (number,) = (i for i, (a, b) in enumerate(zip(before, after, strict=True)) if b > a)
        return stream, number


def test_stripes_of_one_transfer_are_different_connections() -> None:
    desk = Desk(2)
    assert {desk.push("t")[1] for _ in range(5)} == {0, 1, 2, 3, 4}
    assert len(desk.data) == 5


def test_transfers_spread_over_what_is_open() -> None:
    desk = Desk(3)
    assert {desk.push(name)[1] for name in "abc"} == {0, 1, 2}
    desk.push("d")
    assert len(desk.data) == 3


async def test_the_connection_with_the_fewest_bytes_in_flight_is_taken() -> None:
    desk = Desk(2)
    large, _ = desk.push("large")
    await large.write(b"", num_page_bytes=1000)
    second, number = desk.push("second")
    assert number == 1
    await second.write(b"", num_page_bytes=999)
    assert desk.push("third")[1] == 1


async def test_acknowledged_and_closed_streams_weigh_nothing() -> None:
    desk = Desk(2)
    first, _ = desk.push("first")
    await first.write(b"", num_page_bytes=1000)
    second, _ = desk.push("second")
    await second.write(b"", num_page_bytes=500)
    desk.dialer.channels[0].replies.put_nowait(encode_reply(Reply(0, 1, 1000, 2000)))
    assert await first.read() == Reply(0, 1, 1000, 2000)
    assert first.in_flight_bytes == 0
    assert desk.push("third")[1] == 0
    second.close()
    assert desk.push("fourth")[1] == 1


def test_a_connection_that_is_down_is_taken_last() -> None:
    desk = Desk(2)
    desk.dialer.channels[0].state = grpc.ChannelConnectivity.TRANSIENT_FAILURE
    assert [desk.push(name)[1] for name in "abc"] == [1, 1, 1]


def test_opening_lets_connections_try_again_at_once() -> None:
    desk = Desk(1)
    desk.data.open(2)
    assert [channel.num_attempts for channel in desk.dialer.channels] == [2, 1]


def test_the_first_ones_are_the_oldest() -> None:
    desk = Desk(1)
    assert desk.data.first(3) == desk.dialer.channels
    assert desk.data.first(1) == desk.dialer.channels[:1]


@pytest.mark.parametrize("num", [65, 1000])
def test_connections_are_bounded(num: int) -> None:
    assert len(Desk(num).data) == 64


def test_a_transfer_beyond_the_bound_shares_connections() -> None:
    desk = Desk(64)
    for _ in range(64):
        desk.push("t")
    desk.push("t")
    assert len(desk.data) == 64


async def test_closing_closes_all() -> None:
    desk = Desk(3)
    await desk.data.close()
    assert all(channel.is_closed for channel in desk.dialer.channels)


async def test_certificates_are_read_once(tmp_path: Path) -> None:
    """A file that is being replaced when one more connection is wanted does not matter."""
    ca = tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----")
    dialer = Dialer("127.0.0.1:1", TlsSettings(ca=str(ca)))
    ca.unlink()
    await dialer.dial().close()
