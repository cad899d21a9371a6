"""The laboratory's client: open-loop, timed from the schedule, and an error is an answer."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from pdlab.client import Call, make_calls


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def tokens(*token_ids: int) -> bytes:
    return event(choices=[{"token_ids": list(token_ids)}], usage=None)


END = event(choices=[], usage={"prompt_tokens": 7}, timeline={"transfer_id": "t"})


def streamed(*chunks: bytes) -> httpx.Response:
    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
            await asyncio.sleep(0)

    return httpx.Response(200, content=body())


def client(handler: object) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url="http://router", transport=httpx.MockTransport(handler))


async def test_tokens_times_and_timeline_of_a_stream() -> None:
    async with client(lambda _: streamed(tokens(4), tokens(5), tokens(6, 7), END)) as http:
        (answer,) = await make_calls(http, [Call(3, {}, arrival_s=0.0)])
    assert (answer.index, answer.status, answer.error) == (3, "ok", None)
    assert answer.token_ids == [4, 5, 6, 7]
    assert answer.prompt_tokens == 7
    assert answer.timeline == {"transfer_id": "t"}
    assert len(answer.itl_s) == 3  # every token but the first
    assert answer.itl_s[1] == answer.itl_s[2]  # they came together
    assert answer.ttft_s is not None and answer.e2e_s is not None
    assert 0 < answer.ttft_s <= answer.e2e_s
    assert sum(answer.itl_s) + answer.ttft_s <= answer.e2e_s


async def test_a_slow_answer_delays_no_arrival() -> None:
    """The first request is answered only once the second has come."""
    second = asyncio.Event()

    async def handler(request: httpx.Request) -> httpx.Response:
        if request.headers["x-request-id"] == "second":
            second.set()
        await second.wait()
        return streamed(tokens(1), END)

    calls = [Call(0, {}, 0.0, "first"), Call(1, {}, 0.01, "second")]
    async with client(handler) as http:
        first, after = await asyncio.wait_for(make_calls(http, calls), 30)
    assert (first.status, after.status) == ("ok", "ok")
    assert (first.scheduled_s, after.scheduled_s) == (0.0, pytest.approx(0.01))
    assert after.sent_s >= after.scheduled_s


async def test_latency_counts_from_the_schedule_not_from_sending() -> None:
    """The loop is held up when the request is due: the wait is the request's, not nobody's."""

    async with client(lambda _: streamed(tokens(1), END)) as http, asyncio.TaskGroup() as group:
        answers = group.create_task(make_calls(http, [Call(0, {}, arrival_s=0.001)]))
        await asyncio.sleep(0)  # it is scheduled
        asyncio.get_running_loop().call_soon(time.sleep, 0.05)
    (answer,) = answers.result()
    assert answer.sent_s - answer.scheduled_s > 0.04
    assert answer.ttft_s is not None and answer.ttft_s > 0.04


async def test_without_arrivals_one_request_at_a_time() -> None:
    running = 0

    async def handler(request: httpx.Request) -> httpx.Response:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        running -= 1
        return streamed(tokens(1), END)

    async with client(handler) as http:
        answers = await make_calls(http, [Call(i, {}) for i in range(4)])
    assert [answer.index for answer in answers] == [0, 1, 2, 3]
    assert [answer.status for answer in answers] == ["ok"] * 4


async def test_failures_are_answers() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        match request.headers["x-request-id"]:
            case "refused":
                body = {"error": {"type": "service_unavailable", "message": "no room"}}
                return httpx.Response(503, json=body)
            case "broken":
                message = {"type": "transfer_error", "message": "stalled"}
                return streamed(tokens(1), event(error=message))
            case "crashed":
                return httpx.Response(500, text="Internal Server Error")
            case _:
                raise httpx.ConnectError("nobody there")

    names = ("refused", "broken", "unheard", "crashed")
    calls = [Call(i, {}, 0.0, name) for i, name in enumerate(names)]
    async with client(handler) as http:
        refused, broken, unheard, crashed = await make_calls(http, calls)
    assert (refused.status, refused.error) == ("service_unavailable", "no room")
    assert refused.ttft_s is None and refused.e2e_s is not None
    assert (broken.status, broken.error) == ("transfer_error", "stalled")
    assert (unheard.status, unheard.error) == ("transport_error", "nobody there")
    assert (crashed.status, crashed.error) == ("http_500", "Internal Server Error")


async def test_the_deadline_is_that_of_the_whole_request() -> None:
    """Each token comes in time, the last one never does."""

    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield tokens(1)
            await asyncio.sleep(0.01)

    async with client(lambda _: httpx.Response(200, content=drip())) as http:
        http.timeout = 0.2
        (answer,) = await asyncio.wait_for(make_calls(http, [Call(0, {}, arrival_s=0.0)]), 30)
    assert (answer.status, answer.error) == ("timeout", "no end of the answer within 0.2 s")
