"""Sends one request's KV pages to a decode node: ``KvSender.run`` is the whole story.

Invariant: however ``run`` ends, what this transfer had in flight has been given back to the pair's
credit, and its streams are closed. Which bytes leave when is decided in ``frame_queue``; this file
waits, reads pages and writes streams.
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import grpc

from kvtransfer.accounting import SendState
from kvtransfer.changes import Changes, wait_until
from kvtransfer.codecs import RAW
from kvtransfer.data_channels import PushStream
from kvtransfer.frame_queue import FrameQueue, SenderState
from kvtransfer.framing import checksum, encode_push
from kvtransfer.handshake import PROTOCOL
from kvtransfer.last_pages import LastPages
from kvtransfer.limits import SendLimits, Starts
from kvtransfer.messages import Extent, Frame, Handoff, Opening
from kvtransfer.pages import PageSource
from kvtransfer.pair import FIRST_RETRY_S, LAST_RETRY_S, Pair
from kvtransfer.report import PairPath, log_report, report_of
from kvtransfer.send_stripe import OutgoingFrame
from kvtransfer.window import window_for
from pdcore.cluster import Epoch
from pdcore.errors import PeerUnavailable, ProtocolViolation, root_cause
from pdcore.generation import TransferId
from pdcore.settings import TransferSettings
from pdwire.v1.generation_pb2 import TransferReport


@dataclass(frozen=True, slots=True)
class OutgoingTransfer:
    """``page_table``: the sender's page ids of the prompt, in order; the last may be part full."""

    transfer_id: TransferId
    receiver_epoch: Epoch
    page_table: Sequence[int]
    num_tokens: int


class KvSender:
    """Made on the event loop when a request is admitted; pages may become ready before ``run``."""

    def __init__(
        self,
        pair: Pair,
        source: PageSource,
        outgoing: OutgoingTransfer,
        limits: SendLimits,
        settings: TransferSettings,
    ) -> None:
        self._pair = pair
        self._source = source
        self._outgoing = outgoing
        self._limits = limits
        self._settings = settings
        self._changes = Changes()
        self._needs_look = Changes()
        self._num_started = 0  # stripes
        num_pages = pair.layout.num_pages(outgoing.num_tokens)
        self._leaves_early = limits.starts is Starts.WHILE_PREFILL_RUNS
        self._last_pages = LastPages(num_pages)
        self._next_look_s: float | None = None
        self._queue = FrameQueue(
            outgoing.transfer_id,
            pair.layout,
            num_pages=num_pages,
            limits=limits,
            window=window_for(limits, pair.path),
            credit=pair.credit,
            path=pair.path,
            stripes=pair.stripes,
            settings=settings,
        )

    def pages_ready(self, num_pages: int) -> None:
        """Logical pages [0, num_pages) are final. Repeats are harmless."""
        now = monotonic()
        self._queue.pages_ready(num_pages, now)
        if self._leaves_early and (rest := self._last_pages.ready(num_pages, now)) is not None:
            num_left, at_s = rest
            self._pair.expect_pages(num_left * self._pair.layout.page_bytes, at_s)
        self._notify()

    def hand_off(self, first_token_ids: Sequence[int], cached_tokens: int) -> None:
        """Once, after the last page is ready."""
        self._queue.hand_off(tuple(first_token_ids), cached_tokens, monotonic())
        self._notify()

    async def run(self) -> TransferReport:
        """Send until the receiver has committed. Raises the named error of what went wrong."""
        self._pair.enroll(self._id, self._changes)
        try:
            await self._pair.attached(self._outgoing.receiver_epoch, self._settings.resume_s)
            async with asyncio.TaskGroup() as tasks:
                stripes: list[asyncio.Task[None]] = []
                while self._queue.state is not SenderState.COMMITTED:
                    look = self._needs_look.next()
                    self._queue.check(monotonic())
                    for stripe in range(len(stripes), self._queue.num_stripes):
                        stripes.append(tasks.create_task(self._run_stripe(tasks, stripe)))
                    self._num_started = len(stripes)
                    self._next_look_s = self._queue.deadline()
                    await wait_until(look, self._next_look_s)
                for task in stripes:
                    task.cancel()
            return self._report()
        except BaseExceptionGroup as group:
            raise root_cause(group) from group
        finally:
            if self._queue.state is not SenderState.COMMITTED:
                self._queue.record.failed(sys.exception(), monotonic())
            self._queue.close()
            self._pair.dismiss(self._id)

    async def _run_stripe(self, tasks: asyncio.TaskGroup, stripe: int) -> None:
        """One stream after another until the commit, as long as it is the connection that breaks.

        Waits longer each time, and not at all once a stream was answered. A wait is much shorter
        than ``resume_s``, which runs meanwhile.
        """
        delay_s, longest_s = 0.0, min(LAST_RETRY_S, self._settings.resume_s / 4)
        while not self._queue.is_over:
            try:
                await self._run_stream(tasks, stripe)
            except PeerUnavailable:
                was_heard = self._queue.on_broken(stripe, monotonic())
                self._changed()
                delay_s = 0.0 if was_heard else delay_s
                await asyncio.sleep(delay_s)
                delay_s = min(max(FIRST_RETRY_S, 2 * delay_s), longest_s)

    async def _run_stream(self, tasks: asyncio.TaskGroup, stripe: int) -> None:
        """One stream, until the commit. Raises what ended it before."""
        attempt = self._queue.open_stream(stripe, monotonic())
        self._changed()  # the resume clock may run from now on
        stream = self._pair.open_push(self._id)
        writer = tasks.create_task(self._write(stripe, attempt, stream))
        try:
            await self._read(stripe, stream)
        finally:
            writer.cancel()
            stream.close()

    async def _write(self, stripe: int, attempt: int, stream: PushStream) -> None:
        """Write until cancelled. A write that fails tells nothing: the reader learns why."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            opening = encode_push(self._id, attempt, self._opening(stripe))
            await self._send(stripe, stream, opening)
            while True:
                change = self._changes.next()
                message = self._queue.next_message(stripe, monotonic())
                if message is None:
                    self._pair.pass_turn(self._id)
                    await change.wait()
                    continue
                self._changed()  # the stall clock may run from now on
                if isinstance(message, Handoff):
                    await self._send(stripe, stream, encode_push(self._id, attempt, message))
                else:
                    await self._send_frame(stripe, attempt, stream, message)

    async def _send_frame(
        self, stripe: int, attempt: int, stream: PushStream, outgoing: OutgoingFrame
    ) -> None:
        self._pair.frame_leaves()
        message = self._prepare(stripe, attempt, outgoing)
        started_s = monotonic()
        await self._send(stripe, stream, message, outgoing.nbytes)
        self._queue.record.written(outgoing.nbytes, monotonic() - started_s)

    def _prepare(self, stripe: int, attempt: int, outgoing: OutgoingFrame) -> bytes:
        started_s = monotonic()
        self._queue.accounting.busy(stripe, SendState.PREPARE, started_s)
        run = outgoing.run
        pages = self._outgoing.page_table[run.first_page : run.first_page + run.num_pages]
        payload = self._source.read(pages, run.first_layer, run.num_layers)
        frame = Frame(outgoing.sequence, (run,), checksum(payload))
        message = encode_push(self._id, attempt, frame, payload)
        self._queue.record.prepared(outgoing.nbytes, monotonic() - started_s)
        return message

    async def _send(
        self, stripe: int, stream: PushStream, message: bytes, num_page_bytes: int = 0
    ) -> None:
        self._queue.accounting.busy(stripe, SendState.TRANSPORT, monotonic())
        try:
            await stream.write(message, num_page_bytes)
        finally:
            self._queue.accounting.idle(stripe, monotonic())

    async def _read(self, stripe: int, stream: PushStream) -> None:
        """Take replies until the commit. Raises PeerUnavailable for a stream that broke."""
        while (reply := await stream.read()) is not None:
            self._queue.on_reply(stripe, reply, monotonic())
            self._changed()
        if not self._queue.is_over:
            raise ProtocolViolation(f"{self._pair.name} ended a stream without a commit")

    def _changed(self) -> None:
        self._notify()
        self._pair.wake_next_in_line()

    def _notify(self) -> None:
        """The streams look again; ``run`` only for what it cannot sleep through."""
        self._changes.notify()
        deadline_s, next_look_s = self._queue.deadline(), self._next_look_s
        is_earlier = deadline_s is not None and (next_look_s is None or deadline_s < next_look_s)
        if is_earlier or self._queue.is_over or self._queue.num_stripes > self._num_started:
            self._needs_look.notify()

    @property
    def _id(self) -> TransferId:
        return self._outgoing.transfer_id

    def _opening(self, stripe: int) -> Opening:
        num_tokens = self._outgoing.num_tokens
        return Opening(
            sender=self._pair.sender,
            receiver_epoch=self._outgoing.receiver_epoch,
            protocol=PROTOCOL,
            layout=self._pair.layout,
            codec=RAW,
            extent=Extent(
                num_tokens=num_tokens,
                num_pages=self._pair.layout.num_pages(num_tokens),
                num_stripes=self._queue.max_stripes,
            ),
            stripe=stripe,
        )

    def _report(self) -> TransferReport:
        pair, path = self._pair, self._pair.path
        seen = PairPath(
            rtt_s=path.rtt_s,
            tcp_rtt_s=pair.tcp_rtt_s,
            rate_bytes_per_s=path.rate_bytes_per_s,
            send_buffer_bytes=pair.send_buffer_bytes,
            least_rtt_s=pair.path.least_rtt_s,
            backlog=pair.tcp_backlog,
            warmup_bytes=pair.take_warmup_bytes(),
        )
        report = report_of(self._queue, self._limits.mode, seen, monotonic())
        log_report(report, self._id, self._pair.name, slow_s=self._settings.slow_s)
        return report
