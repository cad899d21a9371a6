"""One request's way through the cluster: placed, started at both nodes at once, told back as text.

``Relay.run`` is the whole story. Invariants: both calls carry one transfer id; a leg that fails
before its part is done cancels the other; whatever ends ``run`` (an error, the deadline, the
client) ends both calls; an answer is complete or an error. The relay retries nothing but a request
that met a node which had just begun to drain, and knows no HTTP.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import uuid4

import grpc

from pdcore.cluster import ClusterView, NodeInfo
from pdcore.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    NoCapacity,
    NodeDraining,
    PdspanError,
    root_cause,
)
from pdcore.generation import GenerationRequest, TransferId, Usage
from pdcore.wire import delta_from_proto, request_to_proto, usage_from_proto
from pdwire.v1 import decode_pb2, prefill_pb2
from router.answer import Answer, TextDelta
from router.legs import GenerateLeg, run_prefill
from router.placement import Arm, Placement, Placer, RequestShape
from router.request_watch import RequestWatch

log = logging.getLogger(__name__)

# A refusal comes before any page moves. Any other failure of the prefill leg may have come after
# the commit, with tokens still on their way here, or because of what the decode node is about to
# say: both are worth waiting for, longer than a long round trip.
REFUSALS = (InvalidRequest, NoCapacity, NodeDraining)
REASON_S = 1.0
# How long a whole answer waits for the prefill node's part of the timeline. A node that was frozen
# or unplugged after the commit would hold it back until its connection is given up.
TIMELINE_S = 0.5
MAX_PLACED_AGAIN = 2


@dataclass(frozen=True, slots=True)
class Job:
    """A request and how it is to be served. ``arm`` None: as the cluster is set.

    The deadline, ``request.timeout_s``, counts from the request's arrival at the router.
    """

    request: GenerationRequest
    mode: str
    arm: Arm | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A request that went well. ``prefilled`` is None for a colocated placement, and where the
    prefill node was lost, or fell silent, after the decode node had everything."""

    placement: Placement
    transfer_id: TransferId
    usage: Usage
    finished: decode_pb2.GenerateEvent.Finished
    prefilled: prefill_pb2.RunResult | None


class Cluster(Protocol):
    def view(self) -> ClusterView: ...
    def channel(self, node: NodeInfo) -> grpc.aio.Channel: ...


class Output(Protocol):
    """Where text goes. Waiting in ``deliver`` holds the stream back, down to the decode node."""

    async def deliver(self, deltas: Sequence[TextDelta]) -> None: ...


class Relay:
    def __init__(self, cluster: Cluster, placer: Placer) -> None:
        self._cluster = cluster
        self._placer = placer

    async def run(self, job: Job, answer: Answer, output: Output, watch: RequestWatch) -> Outcome:
        """Serve one request. Raises the PdspanError that explains best why it could not be."""
        for _ in range(MAX_PLACED_AGAIN):
            try:
                return await self._serve(job, answer, output, watch)
            except NodeDraining as error:  # it was chosen before it said so
                if watch.has_tokens.is_set():
                    raise
                extra = {"request_id": job.request.request_id}
                log.info("placed again: %s", error, extra=extra)
        return await self._serve(job, answer, output, watch)

    async def _serve(
        self, job: Job, answer: Answer, output: Output, watch: RequestWatch
    ) -> Outcome:
        """One placement, one transfer id, both legs."""
        request = job.request
        placement = self._place(job)
        transfer_id = TransferId(uuid4().hex)
        try:
            left_s = watch.left_s(request.timeout_s)
            job = replace(job, request=replace(request, timeout_s=left_s))
            exchange = _Exchange(self._cluster, job, placement, transfer_id, answer, output, watch)
            async with asyncio.timeout(left_s) as deadline, asyncio.TaskGroup() as legs:
                generating = legs.create_task(exchange.generate())
                prefilling = legs.create_task(exchange.prefill())
                await asyncio.wait([generating])
                deadline.reschedule(None)  # it is met: the client has every token
                await asyncio.wait([prefilling], timeout=TIMELINE_S)
                prefilling.cancel()
        except TimeoutError:
            raise DeadlineExceeded(
                f"the request's deadline of {request.timeout_s:g} s has passed", param="timeout"
            ) from None
        except BaseExceptionGroup as group:
            raise root_cause(group) from group
        finished = generating.result()
        usage = answer.usage(usage_from_proto(finished.usage))
        prefilled = None if prefilling.cancelled() else prefilling.result()
        return Outcome(placement, transfer_id, usage, finished, prefilled)

    def _place(self, job: Job) -> Placement:
        request = job.request
        shape = RequestShape(len(request.prompt_token_ids), request.max_tokens, request.num_choices)
        return self._placer.place(shape, self._cluster.view(), job.arm)


@dataclass(slots=True)
class _Exchange:
    """The two legs of one request and what they share."""

    cluster: Cluster
    job: Job
    placement: Placement
    transfer_id: TransferId
    answer: Answer
    output: Output
    watch: RequestWatch

    async def generate(self) -> decode_pb2.GenerateEvent.Finished:
        """Pass tokens on as they come. Raises InternalError for a stream without its end."""
        node = self.placement.decode
        finished: decode_pb2.GenerateEvent.Finished | None = None
        with GenerateLeg(self.cluster.channel(node.info), node) as leg:
            await leg.open(self._opening())
            async with aclosing(leg.events()) as events:
                async for event in events:
                    match event.WhichOneof("event"):
                        case "tokens":
                            await self._on_tokens(event.tokens, leg)
                        case "finished":
                            finished = event.finished
        if finished is None:
            raise InternalError(f"decode node {node.info.name} ended the stream half way")
        return finished

    async def prefill(self) -> prefill_pb2.RunResult | None:
        """Compute and ship the prompt's KV. With the first token its failure no longer matters: the
        decode node has committed every page."""
        node = self.placement.prefill
        if node is None:
            return None
        try:
            return await run_prefill(
                self.cluster.channel(node.info), node, self._prefill_request(node.info.epoch)
            )
        except PdspanError as error:
            if not isinstance(error, REFUSALS):
                with suppress(TimeoutError):
                    async with asyncio.timeout(REASON_S):
                        await self.watch.has_tokens.wait()
            if not self.watch.has_tokens.is_set():
                raise
            log.warning(
                "prefill failed after the commit: %s",
                error,
                extra={"request_id": self.job.request.request_id},
            )
            return None

    async def _on_tokens(self, tokens: decode_pb2.GenerateEvent.Tokens, leg: GenerateLeg) -> None:
        deltas = [delta_from_proto(delta) for delta in tokens.deltas]
        self.watch.on_tokens(deltas)
        texts: list[TextDelta] = []
        for delta in deltas:
            text = self.answer.push(delta)
            if text is None:
                continue
            texts.append(text)
            if text.finish_reason is not None and delta.finish_reason is None:
                await leg.stop_choice(text.choice)
        await self.output.deliver(texts)

    def _opening(self) -> decode_pb2.GenerateCommand.Open:
        return decode_pb2.GenerateCommand.Open(
            transfer_id=self.transfer_id,
            request=request_to_proto(self.job.request),
            epoch=self.placement.decode.info.epoch,
            local_prefill=self.placement.prefill is None,
        )

    def _prefill_request(self, epoch: int) -> prefill_pb2.RunRequest:
        decode = self.placement.decode.info
        return prefill_pb2.RunRequest(
            transfer_id=self.transfer_id,
            request=request_to_proto(self.job.request),
            epoch=epoch,
            decode_node=decode.name,
            decode_address=decode.address,
            decode_epoch=decode.epoch,
            mode=self.job.mode,
        )
