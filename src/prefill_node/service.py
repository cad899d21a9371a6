"""``Prefill.Run``: compute a prompt and ship its pages; owns them here until the commit.

The transfer runs beside the computation: each time that more KV is final the sender is told, and
its mode decides what leaves when. Either side failing ends the other; ``finally`` gives all pages
back.
"""

import asyncio
import logging
from typing import Any

import grpc

from kvtransfer.channels import Pairs
from kvtransfer.limits import SendLimits, Starts, limits_for
from kvtransfer.messages import Identity
from kvtransfer.pair import Pair
from kvtransfer.sender import KvSender, OutgoingTransfer
from pdcore.cluster import Epoch, NodeInfo, NodeName
from pdcore.drain import Drain
from pdcore.errors import EpochMismatch
from pdcore.generation import TransferId
from pdcore.metrics import NodeMetrics
from pdcore.rpc_errors import aborting
from pdcore.settings import TransferSettings
from pdcore.timeline import TimelineRecorder
from pdcore.wire import request_from_proto
from pdengine.engine import Engine
from pdwire.v1 import prefill_pb2
from pdwire.v1.generation_pb2 import TransferReport
from prefill_node.chunks import Route
from prefill_node.queue import Job
from prefill_node.worker import PrefillWorker

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class PrefillService:
    def __init__(
        self,
        info: NodeInfo,
        engine: Engine,
        worker: PrefillWorker,
        pairs: Pairs,
        transfer: TransferSettings,
        drain: Drain,
        metrics: NodeMetrics,
    ) -> None:
        self._info = info
        self._engine = engine
        self._worker = worker
        self._pairs = pairs
        self._transfer = transfer
        self._drain = drain
        self._metrics = metrics

    async def Run(self, message: prefill_pb2.RunRequest, context: Context) -> prefill_pb2.RunResult:
        async with aborting(context, message.request.request_id):
            with self._drain.request(), self._metrics.count_request():
                return await self._run(message)

    async def _run(self, message: prefill_pb2.RunRequest) -> prefill_pb2.RunResult:
        if Epoch(message.epoch) != self._info.epoch:
            raise EpochMismatch(
                f"{self._info.name} has epoch {self._info.epoch}, the request means"
                f" {message.epoch}: the node restarted"
            )
        timeline = TimelineRecorder(self._info.name)
        request = request_from_proto(message.request)
        self._engine.check(request)
        limits = limits_for(message.mode, self._transfer, self._engine.layout)
        pair = self._pair(message)
        job = self._worker.submit(request, self._route(pair, limits))
        try:
            await self._compute_and_ship(job, pair, message, limits, timeline)
        finally:
            self._worker.leave(job)
        log.info(
            "prefilled",
            extra={
                "request_id": request.request_id,
                "transfer_id": message.transfer_id,
                "mode": message.mode,
                "prompt_tokens": len(request.prompt_token_ids),
                "cached_tokens": job.cached_tokens,
            },
        )
        return prefill_pb2.RunResult(cached_tokens=job.cached_tokens, timeline=timeline.to_proto())

    def _pair(self, message: prefill_pb2.RunRequest) -> Pair:
        receiver = Identity(NodeName(message.decode_node), Epoch(message.decode_epoch))
        return self._pairs.find(receiver, message.decode_address)

    def _route(self, pair: Pair, limits: SendLimits) -> Route | None:
        """Where pages go while the prompt is computed, as far as its chunks are to mind that."""
        leaves_early = limits.starts is Starts.WHILE_PREFILL_RUNS
        return pair.path if leaves_early and self._transfer.taper else None

    async def _compute_and_ship(
        self,
        job: Job,
        pair: Pair,
        message: prefill_pb2.RunRequest,
        limits: SendLimits,
        timeline: TimelineRecorder,
    ) -> None:
        progress = job.progress()
        num_final = await anext(progress)  # admitted: it has its pages now
        pair.expect_transfer(len(job.admitted.pages) * pair.layout.page_bytes)
        sender = self._sender(job, pair, message, limits)
        async with asyncio.TaskGroup() as tasks:
            transfer = tasks.create_task(self._ship(sender, message.mode))
            sender.pages_ready(num_final // self._engine.layout.page_tokens)
            async for num_final in progress:
                sender.pages_ready(num_final // self._engine.layout.page_tokens)
            sender.pages_ready(self._engine.layout.num_pages(num_final))
            sender.hand_off(job.first_tokens, job.cached_tokens)
        timeline.transfer = transfer.result()
        _add_spans(timeline, job)

    async def _ship(self, sender: KvSender, mode: str) -> TransferReport:
        try:
            report = await sender.run()
        except BaseException as error:
            self._metrics.count_failed_transfer(mode, error)
            raise
        self._metrics.count_transfer(report)
        return report

    def _sender(
        self, job: Job, pair: Pair, message: prefill_pb2.RunRequest, limits: SendLimits
    ) -> KvSender:
        return KvSender(
            pair,
            self._engine.kv,
            OutgoingTransfer(
                TransferId(message.transfer_id),
                receiver_epoch=Epoch(message.decode_epoch),
                page_table=tuple(job.admitted.pages),
                num_tokens=len(job.request.prompt_token_ids),
            ),
            limits,
            self._transfer,
        )


def _add_spans(timeline: TimelineRecorder, job: Job) -> None:
    assert job.started_s is not None and job.finished_s is not None, "the job ran to its end"
    timeline.add("queue", job.queued_s, job.started_s)
    timeline.add("prefill", job.started_s, job.finished_s)
