"""``Decode.Generate``: one call owns one request's pages on this node, from promise to last token.

However the call ends (finished, cancelled by the router, a failed transfer, a deadline), its
``finally`` gives everything back. The first command opens the request, later ones may stop a
choice.
"""

import asyncio
import logging
from collections.abc import Sequence
from time import monotonic
from typing import Any

import grpc

from decode_node.group import Group
from decode_node.loop import DecodeLoop
from decode_node.reservations import Admission, reserve, take_for_prompt
from kvtransfer.receiver import KvReceiver
from pdcore.cluster import Epoch, NodeInfo
from pdcore.drain import Drain
from pdcore.errors import EpochMismatch, InvalidRequest, NoCapacity, ProtocolViolation
from pdcore.generation import GenerationRequest, TransferId, Usage
from pdcore.metrics import NodeMetrics
from pdcore.rpc_errors import aborting
from pdcore.timeline import TimelineRecorder
from pdcore.wire import checked_id, delta_to_proto, request_from_proto, usage_to_proto
from pdengine.engine import Engine
from pdwire.v1 import decode_pb2

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
Command = decode_pb2.GenerateCommand
Event = decode_pb2.GenerateEvent


class DecodeService:
    def __init__(
        self,
        info: NodeInfo,
        engine: Engine,
        loop: DecodeLoop,
        receiver: KvReceiver,
        drain: Drain,
        metrics: NodeMetrics,
        admission: Admission,
    ) -> None:
        self._info = info
        self._engine = engine
        self._loop = loop
        self._receiver = receiver
        self._drain = drain
        self._metrics = metrics
        self._admission = admission
        self.num_receiving = 0

    async def Generate(self, _commands: object, context: Context) -> None:
        async with aborting(context):
            opening = await self._opening(context)
            async with aborting(context, opening.request.request_id):
                with self._drain.request(), self._metrics.count_request():
                    await self._generate(opening, context)

    async def _generate(self, opening: Command.Open, context: Context) -> None:
        timeline = TimelineRecorder(self._info.name)
        transfer_id = TransferId(checked_id(opening.transfer_id, "transfer_id"))
        group = Group(request_from_proto(opening.request))
        self._engine.check(group.request)
        if self._loop.num_preempted:
            raise NoCapacity("no room to decode: preempted sequences are waiting for KV pages")
        try:
            async with asyncio.TaskGroup() as tasks:
                commands = tasks.create_task(self._follow(context, group))
                if opening.local_prefill:
                    await self._prefill_here(group, context)
                else:
                    with timeline.span("receive"):
                        await self._receive(transfer_id, group, context)
                async for deltas in group.deltas():
                    tokens = Event.Tokens(deltas=[delta_to_proto(delta) for delta in deltas])
                    await context.write(Event(tokens=tokens))
                commands.cancel()
            await context.write(Event(finished=self._finished(group, transfer_id, timeline)))
        finally:
            self._loop.leave(group)

    async def _prefill_here(self, group: Group, context: Context) -> None:
        """Colocated: the loop prefills. Pages are taken at once, or the request is refused."""
        num_prompt = len(group.request.prompt_token_ids)
        engine = self._engine
        room = take_for_prompt(
            engine.pool, engine.prefix, engine.layout, group.request, self._admission
        )
        group.cached_tokens = room.num_cached
        group.prefill_s = monotonic()
        self._loop.join_prompt(group, room)
        self._metrics.cached_tokens.inc(room.num_cached)
        self._metrics.prompt_tokens.inc(num_prompt - room.num_cached)
        await context.write(Event(accepted=Event.Accepted()))

    async def _receive(self, transfer_id: TransferId, group: Group, context: Context) -> None:
        """Promise pages, let the transfer fill them, and join the loop once it is committed."""
        reservation = reserve(
            self._engine.pool, self._engine.layout, group.request, self._admission
        )
        self.num_receiving += 1
        try:
            async with self._receiver.expect(transfer_id, reservation) as incoming:
                await context.write(Event(accepted=Event.Accepted()))
                handoff = await incoming.committed()
                self._check_first_tokens(handoff.first_token_ids, group.request)
                room = reservation.commit()
        finally:
            self.num_receiving -= 1
            reservation.give_back()
            self._loop.wake()
        group.cached_tokens = handoff.cached_tokens
        self._loop.join_received(group, room, handoff.first_token_ids)

    def _finished(
        self, group: Group, transfer_id: TransferId, timeline: TimelineRecorder
    ) -> Event.Finished:
        usage = Usage(
            prompt_tokens=len(group.request.prompt_token_ids),
            completion_tokens=group.num_generated,
            cached_tokens=group.cached_tokens,
        )
        if group.first_token_s is not None:
            timeline.add("first_token", timeline.arrived_s, group.first_token_s)
            if group.prefill_s is not None:
                timeline.add("prefill", group.prefill_s, group.first_token_s)
            self._metrics.first_token_s.observe(group.first_token_s - timeline.arrived_s)
            if group.first_step_s is not None:
                timeline.add("first_step", group.first_token_s, group.first_step_s)
            timeline.add("generate", group.first_token_s, monotonic())
        log.info(
            "generated",
            extra={
                "request_id": group.request.request_id,
                "transfer_id": transfer_id,
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
            },
        )
        return Event.Finished(usage=usage_to_proto(usage), timeline=timeline.to_proto())

    async def _opening(self, context: Context) -> Command.Open:
        command = await context.read()
        if command is grpc.aio.EOF or command.WhichOneof("command") != "open":
            raise InvalidRequest("the first command of Generate must be `open`")
        opening: Command.Open = command.open
        if Epoch(opening.epoch) != self._info.epoch:
            raise EpochMismatch(
                f"{self._info.name} has epoch {self._info.epoch}, the request means"
                f" {opening.epoch}: the node restarted"
            )
        return opening

    async def _follow(self, context: Context, group: Group) -> None:
        """Commands after the opening, until the router says no more."""
        while (command := await context.read()) is not grpc.aio.EOF:
            if command.WhichOneof("command") != "stop_choice":
                raise InvalidRequest("after `open`, Generate takes only `stop_choice`")
            self._loop.stop_choice(group, command.stop_choice.choice)

    def _check_first_tokens(
        self, first_token_ids: Sequence[int], request: GenerationRequest
    ) -> None:
        """A choice without a first token would wait for ever."""
        if len(first_token_ids) != request.num_choices:
            raise ProtocolViolation(
                f"the handoff has {len(first_token_ids)} first tokens for"
                f" {request.num_choices} choices"
            )
        self._engine.check_tokens(first_token_ids)
