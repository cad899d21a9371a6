"""Warms connections up to their rate with bytes that mean nothing, and measures that rate.

    warm_up = WarmUp(channels, rtt_s=pong.rtt_s, max_bytes=settings.warmup_bytes)
    await warm_up.run()

How much, and until when, ``WarmRounds`` decides; this file writes and reads the ``Warm`` streams.
Cancelling ``run`` ends the streams at once, and drops what has not left this process.
"""

import asyncio
import math
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from time import monotonic
from typing import Self

import grpc

from kvtransfer.changes import Changes, raise_if_cancelled
from kvtransfer.delivery_rate import Mark
from kvtransfer.framing import decode_warm_reply, encode_warm
from kvtransfer.path import PathEstimator
from kvtransfer.rate_rounds import RateRounds
from kvtransfer.stream_errors import what_ended
from kvtransfer.warm_rounds import MIN_MESSAGE_BYTES, WarmRounds
from pdcore.errors import PdspanError, PeerUnavailable, ProtocolViolation, root_cause

WARM = "/pdwire.v1.KvTransfer/Warm"
# A message holds the largest of these that leaves several of them in the window.
MESSAGE_BYTES = (256 * 2**10, 64 * 2**10, MIN_MESSAGE_BYTES)
MESSAGES_IN_WINDOW = 8
ANSWER_S = 2.0

WarmCall = grpc.aio.StreamStreamCall[bytes, bytes]


class WarmUp:
    """One use. The counts may be read while it runs and after it, however it ended."""

    def __init__(
        self,
        channels: Sequence[grpc.aio.Channel],
        *,
        rtt_s: float,
        max_bytes: int,
        path: PathEstimator | None = None,
        rounds: type[RateRounds] | None = None,
    ) -> None:
        """``path`` is told what leaves and what arrives, and knows what there was before.
        ``rounds``: to measure the rate rather than to warm up."""
        self._path = path or PathEstimator()
        now = monotonic()
        self._rounds = (
            rounds(rtt_s, max_bytes, now=now)
            if rounds
            else WarmRounds(
                rtt_s, max_bytes, known_bytes_per_s=self._path.rate_bytes_per_s, now=now
            )
        )
        self._streams = [_WarmStream(channel, self._path) for channel in channels]
        self._changes = Changes()

    @property
    def sent_bytes(self) -> int:
        return self._rounds.sent_bytes

    @property
    def rate_bytes_per_s(self) -> float:
        """Of the best round, all connections together; 0.0 before there was one."""
        return self._rounds.rate_bytes_per_s

    @property
    def is_warm(self) -> bool:
        """Whether it ended because the rate was what it can be."""
        return self._rounds.is_warm

    @property
    def num_channels(self) -> int:
        return len(self._streams)

    def add(self, channel: grpc.aio.Channel) -> None:
        """One more connection, also while it runs."""
        self._streams.append(_WarmStream(channel, self._path))
        self._changes.notify()

    async def run(self) -> None:
        """Until the path is warm or ``max_bytes`` have been sent, and all is acknowledged.

        Raises the receiver's refusal by name (NoCapacity, NodeDraining), PeerUnavailable when a
        connection breaks.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                num_started = 0
                while not self._rounds.is_over:
                    change = self._changes.next()
                    for stream in self._streams[num_started:]:
                        tasks.create_task(self._fill(tasks, stream))
                    num_started = len(self._streams)
                    await change.wait()
        except BaseExceptionGroup as group:
            raise await self._named(root_cause(group)) from group

    async def _named(self, error: PdspanError) -> PdspanError:
        """A write that fails first hides the name that its stream was refused with; a new stream
        is told."""
        if isinstance(error, PeerUnavailable):
            try:
                async with asyncio.timeout(ANSWER_S), self._streams[0].another() as again:
                    self._rounds.sent(MIN_MESSAGE_BYTES, now=monotonic())
                    await again.write(MIN_MESSAGE_BYTES)
                    await again.read()
            except PdspanError as named:
                return named
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                pass
        return error

    async def _fill(self, tasks: asyncio.TaskGroup, stream: "_WarmStream") -> None:
        async with stream:
            reader = tasks.create_task(self._read(stream))
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the reader learns why
                await self._write(stream)
            await reader

    async def _write(self, stream: "_WarmStream") -> None:
        while not self._rounds.is_over:
            change = self._changes.next()
            nbytes = self._next_message_bytes(stream)
            if nbytes is None:
                await change.wait()
                continue
            self._rounds.sent(nbytes, now=monotonic())
            await stream.write(nbytes)
        await stream.done_writing()

    def _next_message_bytes(self, stream: "_WarmStream") -> int | None:
        """What ``stream`` sends next, at most its share of the window; None: not now."""
        window_bytes = self._rounds.window_bytes
        # Whole messages: a share that never grew by one would look like a path that is full.
        share_bytes = MIN_MESSAGE_BYTES * math.ceil(
            window_bytes / len(self._streams) / MIN_MESSAGE_BYTES
        )
        share_bytes -= stream.in_flight_bytes
        room_bytes = min(self._rounds.room_bytes(), share_bytes)
        largest = max(MIN_MESSAGE_BYTES, window_bytes // MESSAGES_IN_WINDOW)
        fitting = (size for size in MESSAGE_BYTES if size <= min(room_bytes, largest))
        return next(fitting, None)

    async def _read(self, stream: "_WarmStream") -> None:
        while nbytes := await stream.read():
            self._rounds.acked(nbytes, now=monotonic())
            self._changes.notify()
        if not self._rounds.is_over:
            raise ProtocolViolation("the receiver ended a Warm stream early")


class _WarmStream:
    """One ``Warm`` stream; knows what is in flight on it. Leaving the context ends it at once."""

    def __init__(self, channel: grpc.aio.Channel, path: PathEstimator) -> None:
        self.in_flight_bytes = 0
        self._channel = channel
        self._path = path
        self._acked_bytes = 0
        self._unacked: deque[tuple[Mark, int]] = deque()

    async def __aenter__(self) -> Self:
        self._call: WarmCall = self._channel.stream_stream(WARM)(wait_for_ready=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call.cancel()
        self._path.withdrawn(self.in_flight_bytes, len(self._unacked))
        self.in_flight_bytes = 0
        self._unacked.clear()

    def another(self) -> "_WarmStream":
        """On the same connection."""
        return _WarmStream(self._channel, self._path)

    async def write(self, nbytes: int) -> None:
        mark = self._path.sent(nbytes, is_limited=True, now=monotonic())
        self._unacked.append((mark, nbytes))
        self.in_flight_bytes += nbytes
        await self._call.write(_message(nbytes))

    async def done_writing(self) -> None:
        await self._call.done_writing()

    async def read(self) -> int:
        """How many bytes were newly acknowledged; 0 at the end. Raises what ended it before."""
        try:
            data = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise what_ended(error, "the receiver") from error
        except asyncio.CancelledError:
            raise_if_cancelled()
            raise PeerUnavailable("the connection was closed") from None
        if not isinstance(data, bytes):
            return 0
        return self._acknowledged(decode_warm_reply(data))

    def _acknowledged(self, total_bytes: int) -> int:
        """Each message is answered once it has arrived whole."""
        before_bytes = self._acked_bytes
        while self._unacked and self._acked_bytes + self._unacked[0][1] <= total_bytes:
            mark, nbytes = self._unacked.popleft()
            self._acked_bytes += nbytes
            self.in_flight_bytes -= nbytes
            self._path.delivered(mark, nbytes, now=monotonic())
        if not before_bytes < self._acked_bytes == total_bytes:
            raise ProtocolViolation(
                f"{total_bytes} warm-up bytes are acknowledged, after {before_bytes}"
            )
        return total_bytes - before_bytes


@cache
def _message(nbytes: int) -> bytes:
    """Random, so that nothing on the way can make it smaller."""
    return encode_warm(os.urandom(nbytes))
