"""The two generation endpoints: one HTTP request, from its body to the last byte of its answer.

``GenerationEndpoint.__call__`` tells the story. Invariant: a request whose body is
there holds one of the router's places until its answer has left, and whatever ends it (the client
hanging up, and the router that stops, included) ends its work at the nodes.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from pdcore.drain import Drain
from pdcore.errors import (
    DeadlineExceeded,
    InternalError,
    NoCapacity,
    NodeDraining,
    PdspanError,
    RequestCancelled,
    root_cause,
)
from pdcore.generation import GenerationRequest
from pdcore.settings import ClusterSettings
from router.answer import Answer
from router.joined_timeline import joined_timeline
from router.metrics import RouterMetrics
from router.off_loop import off_loop
from router.openai_api import ApiRequest, read_chat, read_completion
from router.output import ClientOutput, EventStream, WholeBody
from router.prepare import Preparer
from router.relay import Cluster, Job, Relay
from router.request_body import BodyReader
from router.request_scope import broke, request_id_of
from router.request_watch import RequestWatch
from router.responses import ChatShape, CompletionShape, Envelope, Shape

log = logging.getLogger(__name__)

T = TypeVar("T")

FAREWELL_S = 1.0  # how long a stream's last event, an error, may wait for its client to read


@dataclass(frozen=True, slots=True)
class Kind:
    """What the two endpoints differ in."""

    read: Callable[[bytes], ApiRequest]
    shape: Shape


COMPLETIONS = Kind(read_completion, CompletionShape())
CHAT = Kind(read_chat, ChatShape())


@dataclass(frozen=True, slots=True)
class Service:
    """What serves every request of this router."""

    name: str
    settings: ClusterSettings
    preparer: Preparer
    cluster: Cluster
    relay: Relay
    drain: Drain
    metrics: RouterMetrics
    bodies: BodyReader
    cut: asyncio.Event = field(default_factory=asyncio.Event)  # the drain took too long

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """One place among ``router.max_queued``. Raises NoCapacity or NodeDraining."""
        most = self.settings.router.max_queued
        if self.drain.num_running >= most:
            raise NoCapacity(f"the router already serves {most} requests, its most; try again")
        with self.drain.request(), self.metrics.in_flight.track_inprogress():
            yield

    async def until_cut(self) -> NoReturn:
        await self.cut.wait()
        raise NodeDraining("the router stopped before this request had ended")

    def context_tokens(self) -> int | None:
        """The most tokens, prompt and answer together, that all nodes can hold; None without a
        node: then nothing can be served, and no length is right or wrong."""
        view = self.cluster.view()
        nodes = (node.info.max_tokens for node in (*view.prefill, *view.decode))
        return min(nodes, default=None)


class GenerationEndpoint:
    """An ASGI application for one of the two."""

    def __init__(self, kind: Kind, service: Service) -> None:
        self._kind = kind
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        watch = RequestWatch(service.metrics, service.name)
        reading = service.bodies.read(Request(scope, receive))
        body = await unless(reading, service.until_cut())
        with service.admitted():
            api = await off_loop(len(body), lambda: self._kind.read(body))
            request = await service.preparer.prepare(
                api, request_id_of(scope), service.context_tokens()
            )
            watch.started()
            output = self._output(api, request, send)
            try:
                serving = self._serve(api, request, output, watch)
                await unless(serving, until_disconnected(receive), service.until_cut())
            except PdspanError as error:
                _log_failure(request, error)
                if not output.has_begun:
                    raise
                broke(scope, error)
                with suppress(TimeoutError):  # a client that does not read holds nothing longer
                    async with asyncio.timeout(FAREWELL_S):
                        await output.fail(error)

    async def _serve(
        self, api: ApiRequest, request: GenerationRequest, output: ClientOutput, watch: RequestWatch
    ) -> None:
        service = self._service
        fields = api.fields
        answer = Answer(service.preparer.text, fields.n, fields.stop, fields.min_tokens)
        mode = fields.kv_transfer_params.mode or service.settings.transfer.mode
        outcome = await service.relay.run(Job(request, mode, api.arm), answer, output, watch)
        watch.finished(outcome.usage)
        timeline = joined_timeline(watch.timeline.to_proto(), outcome) if fields.timeline else None
        try:
            async with asyncio.timeout(request.timeout_s):
                await output.finish(outcome.usage, timeline)
        except TimeoutError:
            raise DeadlineExceeded("the client does not read its answer", param="timeout") from None
        log.info(
            "finished",
            extra={
                "request_id": request.request_id,
                "transfer_id": outcome.transfer_id,
                "prompt_tokens": outcome.usage.prompt_tokens,
                "completion_tokens": outcome.usage.completion_tokens,
            },
        )

    def _output(self, api: ApiRequest, request: GenerationRequest, send: Send) -> ClientOutput:
        model = self._service.preparer.model.name
        envelope = Envelope(
            request.request_id, int(time.time()), model, api.fields.return_token_ids
        )
        if api.fields.stream:
            return EventStream(send, self._kind.shape, envelope, api.include_usage)
        return WholeBody(send, self._kind.shape, envelope, request.num_choices)


async def unless(work: Awaitable[T], *interruptions: Coroutine[object, object, NoReturn]) -> T:
    """Wait for ``work``. An interruption that raises ends it, with the interruption's error."""
    try:
        async with asyncio.TaskGroup() as group:
            watchers = [group.create_task(interruption) for interruption in interruptions]
            result = await work
            for watcher in watchers:
                watcher.cancel()
    except BaseExceptionGroup as errors:
        raise root_cause(errors) from errors
    return result


async def until_disconnected(receive: Receive) -> NoReturn:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise RequestCancelled("the client hung up")


def _log_failure(request: GenerationRequest, error: PdspanError) -> None:
    level = logging.ERROR if isinstance(error, InternalError) else logging.INFO
    log.log(
        level,
        "failed: %s",
        error,
        exc_info=error if isinstance(error, InternalError) else None,
        extra={"request_id": request.request_id, "error": type(error).__name__},
    )
