"""``Ping`` and ``Warm`` against a receiver on loopback, by our own client and by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest

from kvtransfer import kernel_tcp, path_service
from kvtransfer.framing import decode_warm_reply, encode_warm
from kvtransfer.ping import ping
from kvtransfer.warm_path import WARM, WarmUp
from pdcore.errors import (
    NoCapacity,
    NodeDraining,
    PdspanError,
    PeerUnavailable,
    ProtocolViolation,
)
from pdcore.rpc import open_channel
from pdcore.rpc_errors import error_from_rpc
from pdcore.settings import TlsSettings
from waiting import raises, until
from wired_pair import SETTINGS, Wire, wired

KIB, MIB = 2**10, 2**20


@asynccontextmanager
async def channel_to(wire: Wire) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(f"127.0.0.1:{wire.relay.port}", TlsSettings()) as channel:
        yield channel


async def end_of(call: grpc.aio.StreamStreamCall) -> PdspanError | None:
    try:
        while await call.read() is not grpc.aio.EOF:
            continue
    except grpc.aio.AioRpcError as error:
        return error_from_rpc(error, "decode-0")
    return None


async def test_ping_tells_the_receive_buffer() -> None:
    async with wired() as wire, channel_to(wire) as channel:
        pong = await ping(channel, 5.0)
    assert 0 < pong.rtt_s < 5.0
    assert pong.max_receive_buffer_bytes == kernel_tcp.max_receive_buffer_bytes()


async def test_ping_of_nobody() -> None:
    async with wired() as wire, channel_to(wire) as channel:
        wire.relay.accepts = False
        error = await raises(PeerUnavailable, ping(channel, 0.2))
    assert "no answer to a ping within 0.2 s" in str(error)


async def test_a_node_that_drains_still_answers_pings() -> None:
    async with wired() as wire, channel_to(wire) as channel:
        wire.receiver.close()
        assert (await ping(channel, 5.0)).rtt_s > 0


@pytest.mark.parametrize("num_connections", [1, 3])
async def test_a_warm_up_ends_by_itself(num_connections: int) -> None:
    async with wired() as wire:
        target = f"127.0.0.1:{wire.relay.port}"
        channels = [open_channel(target, TlsSettings()) for _ in range(num_connections)]
        warm_up = WarmUp(channels, rtt_s=0.001, max_bytes=256 * MIB)
        await warm_up.run()
        for channel in channels:
            await channel.close()
    assert warm_up.is_warm
    assert warm_up.rate_bytes_per_s > 0
    assert wire.relay.num_bytes >= warm_up.sent_bytes > 0


async def test_a_warm_up_stops_at_its_cap() -> None:
    async with wired() as wire, channel_to(wire) as channel:
        warm_up = WarmUp([channel], rtt_s=0.001, max_bytes=100 * KIB)
        await warm_up.run()
    assert not warm_up.is_warm
    assert 80 * KIB < warm_up.sent_bytes <= 100 * KIB


async def test_a_cancelled_warm_up_leaves_the_connection_usable() -> None:
    async with wired() as wire, channel_to(wire) as channel:
        warm_up = WarmUp([channel], rtt_s=10.0, max_bytes=256 * MIB)
        task = asyncio.create_task(warm_up.run())
        await until(lambda: warm_up.sent_bytes > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await ping(channel, 5.0)).rtt_s > 0


async def test_a_connection_that_breaks_ends_the_warm_up_by_name() -> None:
    async with wired() as wire, channel_to(wire) as channel:
        warm_up = WarmUp([channel], rtt_s=10.0, max_bytes=256 * MIB)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(raises(PeerUnavailable, warm_up.run()))
            await until(lambda: wire.relay.num_bytes > 0)
            wire.relay.accepts = False
            wire.relay.cut()


async def test_more_than_the_receiver_takes_is_refused_by_name() -> None:
    async with wired(replace(SETTINGS, accept_warmup_bytes=200 * KIB)) as wire:
        async with channel_to(wire) as channel:
            warm_up = WarmUp([channel], rtt_s=1.0, max_bytes=256 * MIB)
            error = await raises(NoCapacity, warm_up.run())
            assert "decode-0 takes no more warm-up bytes" in str(error)
            call = channel.stream_stream(WARM)()
            await call.write(encode_warm(bytes(200 * KIB)))
            assert isinstance(await end_of(call), NoCapacity)
        async with channel_to(wire) as other:
            await WarmUp([other], rtt_s=0.001, max_bytes=64 * KIB).run()


async def test_each_message_is_answered_with_the_total() -> None:
    async with wired() as wire, channel_to(wire) as channel:
        call = channel.stream_stream(WARM)()
        for size, total in ((5, 5), (70_000, 70_005), (1, 70_006)):
            await call.write(encode_warm(bytes(size)))
            assert decode_warm_reply(await call.read()) == total
        await call.done_writing()
        assert await end_of(call) is None


@pytest.mark.parametrize("message", [b"garbage", b"", b"\x0a\x05abc", encode_warm(b"abc") + b"x"])
async def test_what_is_no_message_is_named(message: bytes) -> None:
    async with wired() as wire, channel_to(wire) as channel:
        call = channel.stream_stream(WARM)()
        await call.write(message)
        assert isinstance(await end_of(call), ProtocolViolation)


async def test_a_silent_stream_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_service, "IDLE_S", 0.2)
    async with wired() as wire, channel_to(wire) as channel, asyncio.timeout(5):
        error = await end_of(channel.stream_stream(WARM)())
    assert isinstance(error, ProtocolViolation)
    assert "carried nothing for 0.2 s" in str(error)


async def test_a_drain_ends_warm_ups_and_refuses_new_ones() -> None:
    async with wired() as wire, channel_to(wire) as channel:
        call = channel.stream_stream(WARM)()
        await call.write(encode_warm(b"abc"))
        await call.read()
        wire.receiver.close()
        assert isinstance(await end_of(call), NodeDraining)
        again = WarmUp([channel], rtt_s=0.001, max_bytes=MIB)
        assert "decode-0 is stopping" in str(await raises(NodeDraining, again.run()))
