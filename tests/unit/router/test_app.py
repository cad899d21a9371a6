"""The HTTP surface, in process: shapes, statuses, streams, and errors in OpenAI's form."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.types import Message

from cluster_views import decode, prefill
from pdcore.cluster import ClusterView
from pdcore.errors import DeadlineExceeded, NoCapacity, PdspanError, TransferStalled
from pdcore.generation import FinishReason
from pdcore.settings import ClusterSettings, RouterSettings
from router import endpoint as endpoint_module
from router.endpoint import COMPLETIONS, GenerationEndpoint, Service
from router.relay import Job
from router.request_body import BodyReader
from router_app import Speaker, client_of, fake_service

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
COMPLETION = {"prompt": "hi"}
BOTH = [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)]


def events_of(response: httpx.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]" and lines.count("[DONE]") == 1
    return [json.loads(line) for line in lines[:-1]]


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def test_a_completion() -> None:
    async with client_of(fake_service()) as client:
        response = await client.post("/v1/completions", json=COMPLETION | {"n": 2})
    body = response.json()
    assert (response.status_code, body["object"], body["model"]) == (200, "text_completion", "tiny")
    assert body["id"] == "cmpl-" + response.headers["x-request-id"]
    assert [(c["index"], c["text"], c["finish_reason"]) for c in body["choices"]] == [
        (0, "hello world", "stop"),
        (1, "hello world", "stop"),
    ]
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 4}
    assert "timeline" not in body


async def test_a_chat() -> None:
    async with client_of(fake_service()) as client:
        body = (await client.post("/v1/chat/completions", json=CHAT)).json()
    assert body["object"] == "chat.completion" and body["id"].startswith("chatcmpl-")
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "hello world", "refusal": None}
    assert choice["finish_reason"] == "stop"


async def test_a_streamed_chat_has_the_role_first_and_the_reason_last() -> None:
    async with client_of(fake_service()) as client:
        response = await client.post("/v1/chat/completions", json=CHAT | {"stream": True, "n": 2})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = events_of(response)
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert "usage" not in events[0]
    for index in (0, 1):
        mine = [c for event in events for c in event["choices"] if c["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(c["delta"].get("content", "") for c in mine) == "hello world"
        assert [c["finish_reason"] for c in mine] == [None, None, "stop"]


async def test_a_streamed_completion_with_usage() -> None:
    fields = COMPLETION | {"stream": True, "stream_options": {"include_usage": True}}
    async with client_of(fake_service()) as client:
        events = events_of(await client.post("/v1/completions", json=fields))
    assert [event["usage"] for event in events[:-1]] == [None, None]
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] > 0
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == "hello world"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_timeline_is_there_when_asked_for(stream: bool) -> None:
    fields = COMPLETION | {
        "timeline": True,
        "stream": stream,
        "kv_transfer_params": {"mode": "bulk"},
    }
    async with client_of(fake_service()) as client:
        response = await client.post("/v1/completions", json=fields)
    body = events_of(response)[-1] if stream else response.json()
    assert not stream or (body["choices"] == [] and "usage" not in body)
    timeline = body["timeline"]
    assert timeline["placement"] == {"prefill": "p0", "decode": "d0"}
    assert timeline["transfer_id"] == "t1"
    assert timeline["prefill"]["spans"] == [{"name": "prefill", "start_s": 0.0, "duration_s": 0.25}]
    assert timeline["transfer"]["mode"] == "bulk"
    assert timeline["transfer"]["shares"]["producer_s"] == 0.5
    names = [span["name"] for span in timeline["router"]["spans"]]
    assert names == ["prepare", "first_token", "generate"]
    assert timeline["decode"] == {"node": "d0", "clock_s": 4.5, "spans": []}


async def test_a_stop_string_never_shows() -> None:
    fields = COMPLETION | {"stream": True, "stop": ["o w"]}
    async with client_of(fake_service()) as client:
        events = events_of(await client.post("/v1/completions", json=fields))
    choices = [event["choices"][0] for event in events]
    assert "".join(c["text"] for c in choices) == "hell"
    assert choices[-1]["finish_reason"] == "stop"


def failing(error: PdspanError, after: str = "") -> Any:
    async def script(job: Job, speaker: Speaker) -> None:
        if after:
            await speaker.say(after)
        raise error

    return script


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_before_the_first_token_has_its_status(stream: bool) -> None:
    service = fake_service(failing(NoCapacity("no room to decode")))
    async with client_of(service) as client:
        response = await client.post("/v1/completions", json=COMPLETION | {"stream": stream})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert error_of(response) == {
        "message": "no room to decode",
        "type": "service_unavailable",
        "param": None,
        "code": "no_capacity",
    }


async def test_an_error_after_it_is_an_event_and_the_end_of_the_stream() -> None:
    service = fake_service(failing(TransferStalled("no byte moved"), after="hel"))
    async with client_of(service) as client:
        response = await client.post("/v1/completions", json=COMPLETION | {"stream": True})
        metrics = (await client.get("/metrics")).text
    events = events_of(response)
    assert events[0]["choices"][0]["text"] == "hel"
    assert events[-1]["error"]["code"] == "transfer_stalled"
    assert 'requests_total{endpoint="/v1/completions",status="502"} 1.0' in metrics


async def test_a_whole_answer_that_breaks_is_an_error_not_half_an_answer() -> None:
    service = fake_service(failing(TransferStalled("no byte moved"), after="hel"))
    async with client_of(service) as client:
        response = await client.post("/v1/completions", json=COMPLETION)
    assert response.status_code == 502
    assert error_of(response)["type"] == "transfer_error"


async def test_a_missing_end_is_an_error() -> None:
    async def script(job: Job, speaker: Speaker) -> None:
        await speaker.say("hel")

    async with client_of(fake_service(script)) as client:
        response = await client.post("/v1/completions", json=COMPLETION)
    assert response.status_code == 500
    assert "unfinished" in error_of(response)["message"]


@pytest.mark.parametrize(("path", "fields"), BOTH)
@pytest.mark.parametrize(
    ("wrong", "status", "code", "param"),
    [
        ({"temperature": -1}, 400, "invalid_value", "temperature"),
        ({"model": "gpt-4"}, 404, "model_not_found", "model"),
        ({"tools": [{"type": "function"}]}, 400, "unsupported", "tools"),
        ({"max_tokens": "many"}, 400, "invalid_value", "max_tokens"),
        ({"prompt": [5] * 64, "messages": 1}, 400, None, None),
    ],
)
async def test_bad_input(
    path: str,
    fields: dict[str, Any],
    wrong: dict[str, Any],
    status: int,
    code: str | None,
    param: str | None,
) -> None:
    async with client_of(fake_service()) as client:
        response = await client.post(path, json=fields | wrong)
    assert response.status_code == status
    error = error_of(response)
    assert error["type"] == "invalid_request_error"
    if code is not None:
        assert (error["code"], error["param"]) == (code, param)


async def test_a_prompt_that_is_too_long_names_both_lengths() -> None:
    async with client_of(fake_service()) as client:
        response = await client.post("/v1/completions", json={"prompt": [5] * 70})
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "70 tokens" in error["message"] and "64 tokens" in error["message"]


async def test_the_smallest_node_bounds_the_context() -> None:
    """YaRN reaches beyond ``max_position_embeddings``, a small pool not as far."""
    small, large = decode("d0", max_tokens=4 * 64), decode("d1", max_tokens=4096)
    service = fake_service(cluster=ClusterView((prefill("p0", small, large),), (small, large)))
    assert service.context_tokens() == 64
    service = fake_service(cluster=ClusterView((), (small, large)))
    assert service.context_tokens() == 4 * 64


async def test_without_a_node_there_is_no_context() -> None:
    service = fake_service(cluster=ClusterView())
    assert service.context_tokens() is None
    async with client_of(service) as client:
        response = await client.post("/v1/completions", json=COMPLETION)
        model = (await client.get("/v1/models/tiny")).json()
    assert (response.status_code, error_of(response)["code"]) == (503, "no_capacity")
    assert model["max_model_len"] is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"prompt": "\\ud800"}'])
async def test_bodies_that_are_no_json(body: bytes) -> None:
    async with client_of(fake_service()) as client:
        response = await client.post("/v1/completions", content=body)
    assert response.status_code == 400
    assert error_of(response)["param"] is None


@pytest.mark.parametrize("size", [5000, 100_000])
async def test_a_body_that_is_too_large(size: int) -> None:
    async with client_of(fake_service()) as client:
        response = await client.post("/v1/completions", json={"prompt": "x" * size})
    assert response.status_code == 413
    assert error_of(response)["code"] == "body_too_large"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/v1/embeddings", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
        ("POST", "/v1/completions/", 404, "not_found"),
        ("GET", "/health/", 404, "not_found"),
    ],
)
async def test_wrong_methods_and_paths(method: str, path: str, status: int, code: str) -> None:
    async with client_of(fake_service()) as client:
        response = await client.request(method, path)
    assert response.status_code == status
    assert error_of(response)["code"] == code


async def test_a_host_that_is_none_changes_nothing() -> None:
    """No path is read from it, and nobody is sent to it."""
    async with client_of(fake_service()) as client:
        response = await client.get("/nowhere", headers={"Host": "[evil"})
    assert (response.status_code, error_of(response)["message"]) == (
        404,
        "there is nothing at /nowhere",
    )


@pytest.mark.parametrize("path", ["/health", "/version", "/metrics", "/v1/models"])
async def test_head_asks_as_get_does(path: str) -> None:
    async with client_of(fake_service()) as client:
        assert (await client.head(path)).status_code == 200
    async with client_of(fake_service(cluster=ClusterView())) as client:
        assert (await client.head("/health")).status_code == 503


async def test_models() -> None:
    async with client_of(fake_service()) as client:
        listed = (await client.get("/v1/models")).json()
        one = (await client.get("/v1/models/tiny")).json()
        none = await client.get("/v1/models/other/name")
    assert listed == {"object": "list", "data": [one]}
    assert (one["id"], one["object"], one["max_model_len"]) == ("tiny", "model", 64)
    assert (none.status_code, error_of(none)["code"]) == (404, "model_not_found")


async def test_health_says_whether_a_request_can_be_served() -> None:
    async with client_of(fake_service()) as client:
        assert (await client.get("/health")).status_code == 200
    async with client_of(fake_service(cluster=ClusterView())) as client:
        response = await client.get("/health")
    assert (response.status_code, response.json()["reason"]) == (503, "no decode node answers")


async def test_nodes_of_another_model_serve_nothing() -> None:
    strangers = ClusterView(strangers=(decode("d0", model="other"),))
    async with client_of(fake_service(cluster=strangers)) as client:
        health = await client.get("/health")
        refused = await client.post("/v1/completions", json=COMPLETION)
    reason = "no decode node serves this router's model: d0 serves 'other'"
    assert (health.status_code, health.json()["reason"]) == (503, reason)
    assert "no node that serves this model answers" in error_of(refused)["message"]


async def test_version_and_request_ids() -> None:
    async with client_of(fake_service()) as client:
        response = await client.get("/version", headers={"X-Request-Id": "mine-1"})
        odd = await client.get("/version", headers={"X-Request-Id": "no spaces, please"})
    assert response.json()["version"]
    assert response.headers["x-request-id"] == "mine-1"
    assert odd.headers["x-request-id"] != "no spaces, please"


async def test_metrics_count_what_clients_got() -> None:
    async with client_of(fake_service()) as client:
        await client.post("/v1/completions", json=COMPLETION)
        await client.get("/no/such/path")
        text = (await client.get("/metrics")).text
    assert 'pdspan_router_requests_total{endpoint="/v1/completions",status="200"} 1.0' in text
    assert 'pdspan_router_requests_total{endpoint="other",status="404"} 1.0' in text
    assert "pdspan_router_first_token_seconds_count 1.0" in text
    assert "pdspan_router_request_seconds_count 1.0" in text
    assert "pdspan_router_in_flight 0.0" in text


async def test_a_full_router_and_a_stopping_one_refuse() -> None:
    may_end = asyncio.Event()
    has_begun = asyncio.Event()

    async def script(job: Job, speaker: Speaker) -> None:
        has_begun.set()
        await may_end.wait()
        await speaker.say("late", end=FinishReason.LENGTH)

    service = fake_service(script, settings=ClusterSettings(router=RouterSettings(max_queued=1)))
    async with client_of(service) as client, asyncio.TaskGroup() as group:
        running = group.create_task(client.post("/v1/completions", json=COMPLETION))
        await has_begun.wait()
        full = await client.post("/v1/completions", json=COMPLETION)
        assert (full.status_code, error_of(full)["code"]) == (503, "no_capacity")
        assert full.headers["retry-after"] == "1"

        draining = group.create_task(service.drain.finish(10))
        await asyncio.sleep(0)
        health = await client.get("/health")
        assert (health.status_code, health.json()["reason"]) == (503, "the router is stopping")
        may_end.set()
        assert await draining
        assert (await running).json()["choices"][0]["text"] == "late"
        stopped = await client.post("/v1/completions", json=COMPLETION)
        assert (stopped.status_code, error_of(stopped)["code"]) == (503, "node_draining")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_is_cut_ends_with_an_error(stream: bool) -> None:
    has_begun = asyncio.Event()

    async def script(job: Job, speaker: Speaker) -> None:
        await speaker.say("hel")
        has_begun.set()
        await asyncio.Event().wait()

    service = fake_service(script)
    async with client_of(service) as client, asyncio.TaskGroup() as group:
        fields = COMPLETION | {"stream": stream}
        running = group.create_task(client.post("/v1/completions", json=fields))
        await has_begun.wait()
        service.cut.set()
        response = await running
        metrics = (await client.get("/metrics")).text
    error = events_of(response)[-1]["error"] if stream else error_of(response)
    assert (error["code"], error["type"]) == ("node_draining", "service_unavailable")
    assert response.status_code == (200 if stream else 503)
    assert 'requests_total{endpoint="/v1/completions",status="503"} 1.0' in metrics
    assert service.drain.num_running == 0


async def test_a_request_whose_body_is_still_coming_is_cut_too() -> None:
    is_read = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b'{"prompt": "h'
        is_read.set()
        await asyncio.Event().wait()

    service = fake_service()
    async with client_of(service) as client, asyncio.TaskGroup() as group:
        running = group.create_task(client.post("/v1/completions", content=endless()))
        await is_read.wait()
        service.cut.set()
        response = await running
    assert (response.status_code, error_of(response)["code"]) == (503, "node_draining")


class Stubborn:
    """An ASGI client that takes the head and the first event of a stream, and nothing more."""

    def __init__(self, body: bytes) -> None:
        self._requests = [{"type": "http.request", "body": body, "more_body": False}]
        self._num_taken = 0

    async def receive(self) -> Message:
        if not self._requests:
            await asyncio.Event().wait()
        return self._requests.pop()

    async def send(self, message: Message) -> None:
        self._num_taken += 1
        if self._num_taken > 2:
            await asyncio.Event().wait()

    async def ask(self, service: Service) -> None:
        scope = {"type": "http", "state": {"request_id": "r1"}, "headers": []}
        await GenerationEndpoint(COMPLETIONS, service)(scope, self.receive, self.send)


async def hello_and_no_more(job: Job, speaker: Speaker) -> None:
    await speaker.say("hello")
    raise DeadlineExceeded("late")


async def hello_and_the_end(job: Job, speaker: Speaker) -> None:
    await speaker.say("hello", end=FinishReason.STOP)


@pytest.mark.parametrize("script", [hello_and_no_more, hello_and_the_end])
async def test_a_client_that_does_not_read_keeps_no_place(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "FAREWELL_S", 0.01)
    service = fake_service(script)
    async with asyncio.timeout(5):
        await Stubborn(b'{"prompt": "hi", "stream": true, "timeout": 0.02}').ask(service)
    assert service.drain.num_running == 0


async def test_half_bodies_take_no_place() -> None:
    is_read = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b'{"prompt": "h'
        is_read.set()
        await asyncio.Event().wait()

    service = fake_service(settings=ClusterSettings(router=RouterSettings(max_queued=1)))
    async with client_of(service) as client, asyncio.TaskGroup() as group:
        half = group.create_task(client.post("/v1/completions", content=endless()))
        await is_read.wait()
        assert (await client.post("/v1/completions", json=COMPLETION)).status_code == 200
        half.cancel()


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'{"prompt": "h'
        await asyncio.Event().wait()

    async with client_of(fake_service(bodies=BodyReader(4096, timeout_s=0.01))) as client:
        response = await client.post("/v1/completions", content=endless())
        metrics = (await client.get("/metrics")).text
    assert (response.status_code, error_of(response)["code"]) == (408, "body_too_slow")
    assert error_of(response)["type"] == "invalid_request_error"
    assert response.headers["connection"] == "close"
    assert 'requests_total{endpoint="/v1/completions",status="408"} 1.0' in metrics


async def test_a_defect_is_a_500_in_the_same_shape() -> None:
    async def script(job: Job, speaker: Speaker) -> None:
        raise ZeroDivisionError

    async with client_of(fake_service(script)) as client:
        response = await client.post("/v1/completions", json=COMPLETION)
    assert response.status_code == 500
    assert error_of(response)["type"] == "internal_error"
