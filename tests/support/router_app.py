"""The router's web application over a cluster that is a value and nodes that are a script."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import grpc
import httpx
from prometheus_client import CollectorRegistry

from cluster_views import whole_cluster
from pdcore.cluster import ClusterView, NodeInfo
from pdcore.drain import Drain
from pdcore.errors import PeerUnavailable
from pdcore.generation import FinishReason, TokenDelta, TransferId, Usage
from pdcore.settings import ClusterSettings, RouterSettings
from pdwire.v1.decode_pb2 import GenerateEvent
from pdwire.v1.generation_pb2 import NodeTimeline, Span, TransferReport
from pdwire.v1.prefill_pb2 import RunResult
from router.answer import Answer
from router.app import build_app
from router.endpoint import Service
from router.metrics import RouterMetrics
from router.model_info import ModelInfo
from router.placement import Placement, open_placer
from router.prepare import Preparer
from router.relay import Job, Outcome, Output
from router.request_body import BodyReader
from router.request_watch import RequestWatch
from tiny_text import tiny_text

MODEL = ModelInfo("tiny", vocab_size=330, eos_token_ids=(1,))

Script = Callable[[Job, "Speaker"], Awaitable[None]]


@dataclass
class Speaker:
    """What a script says to the client, in the decode node's name."""

    answer: Answer
    output: Output
    watch: RequestWatch
    num_tokens: int = 0

    async def say(self, text: str, choice: int = 0, end: FinishReason | None = None) -> None:
        ids = tuple(tiny_text()._tokenizer.encode(text, add_special_tokens=False).ids)
        delta = TokenDelta(choice, ids, end)
        self.num_tokens += len(ids) + (end is FinishReason.STOP)
        self.watch.on_tokens([delta])
        text_delta = self.answer.push(delta)
        await self.output.deliver([text_delta] if text_delta else [])


@dataclass
class FakeRelay:
    """Stands for ``Relay``: runs a script instead of two calls."""

    script: Script
    jobs: list[Job] = field(default_factory=list)

    async def run(self, job: Job, answer: Answer, output: Output, watch: RequestWatch) -> Outcome:
        self.jobs.append(job)
        speaker = Speaker(answer, output, watch)
        await self.script(job, speaker)
        usage = answer.usage(Usage(len(job.request.prompt_token_ids), speaker.num_tokens, 4))
        prefill, decode = whole_cluster(1, 1).pairs()[0]
        report = TransferReport(mode=job.mode, page_bytes=10, producer_s=0.5, duration_s=1.0)
        spans = [Span(name="prefill", start_s=0.0, duration_s=0.25)]
        return Outcome(
            Placement(prefill, decode),
            TransferId("t1"),
            usage,
            GenerateEvent.Finished(timeline=NodeTimeline(node="d0", clock_s=4.5)),
            RunResult(timeline=NodeTimeline(node="p0", spans=spans, transfer=report)),
        )


@dataclass
class FakeCluster:
    nodes: ClusterView

    def view(self) -> ClusterView:
        return self.nodes

    def channel(self, node: NodeInfo) -> grpc.aio.Channel:
        raise PeerUnavailable(f"node {node.name} is only a value")


async def say_hello(job: Job, speaker: Speaker) -> None:
    for choice in range(job.request.num_choices):
        await speaker.say("hello", choice)
        await speaker.say(" world", choice, FinishReason.STOP)


def fake_service(
    script: Script = say_hello,
    *,
    cluster: ClusterView | None = None,
    settings: ClusterSettings | None = None,
    bodies: BodyReader | None = None,
) -> Service:
    settings = settings or ClusterSettings(router=RouterSettings(max_body_bytes=4096))
    return Service(
        name="router",
        settings=settings,
        preparer=Preparer(tiny_text(), MODEL, settings.router),
        cluster=FakeCluster(whole_cluster(1, 1) if cluster is None else cluster),
        relay=FakeRelay(script),  # type: ignore[arg-type]
        drain=Drain("the router"),
        metrics=RouterMetrics(CollectorRegistry()),
        bodies=bodies or BodyReader(settings.router.max_body_bytes),
    )


def client_of(service: Service) -> httpx.AsyncClient:
    """An HTTP client without a socket."""
    app = build_app(service, open_placer(service.settings.router.placement))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://router")
