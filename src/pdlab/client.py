"""The laboratory's client: a process on the router's host that sends requests and times answers.

``python -m pdlab.client`` reads orders from stdin and writes results to stdout, a JSON object a
line each; it ends with its input. Arrivals are open-loop: a request leaves at its scheduled time
whatever became of the others, and every latency counts from that time. A request without one leaves
when the request before it has ended.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Any

import httpx

from pdcore.typed_table import read_table

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Call:
    """One request. ``body`` is that of ``/v1/completions``; ``arrival_s`` counts from the order."""

    index: int
    body: Mapping[str, Any]
    arrival_s: float | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """Calls to make, all answered before the next order is read.

    ``ready_s``: wait so long at most until the router says that it can serve, first.
    """

    url: str
    timeout_s: float
    calls: tuple[Call, ...] = ()
    ready_s: float = 0.0


@dataclass(slots=True)
class Answer:
    """How one call went; times in seconds, since the order (``scheduled_s``, ``sent_s``) or since
    the scheduled time (the others)."""

    index: int
    scheduled_s: float
    sent_s: float
    status: str = "ok"
    error: str | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None
    itl_s: list[float] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    timeline: Mapping[str, Any] | None = None


async def serve_orders(lines: AsyncIterator[str], say: Callable[[str], None]) -> None:
    async for line in lines:
        order = read_table(Order, json.loads(line), "order")
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        async with httpx.AsyncClient(
            base_url=order.url, timeout=order.timeout_s, limits=limits, trust_env=False
        ) as http:
            ready = order.ready_s == 0 or await _becomes_ready(http, order.ready_s)
            for answer in await make_calls(http, order.calls):
                say(json.dumps({"answer": asdict(answer)}))
        say(json.dumps({"done": ready}))


async def make_calls(http: httpx.AsyncClient, calls: Sequence[Call]) -> list[Answer]:
    """In the order of ``calls``."""
    start_s = monotonic()
    async with asyncio.TaskGroup() as group:
        closed = [call for call in calls if call.arrival_s is None]
        one_by_one = group.create_task(_one_by_one(http, closed, start_s))
        open_loop = [
            group.create_task(_at(http, call, start_s + call.arrival_s, start_s))
            for call in calls
            if call.arrival_s is not None
        ]
    answers = [*one_by_one.result(), *(task.result() for task in open_loop)]
    return sorted(answers, key=lambda answer: answer.index)


async def _one_by_one(
    http: httpx.AsyncClient, calls: Sequence[Call], start_s: float
) -> list[Answer]:
    return [await _at(http, call, monotonic(), start_s) for call in calls]


async def _at(http: httpx.AsyncClient, call: Call, due_s: float, start_s: float) -> Answer:
    """Send ``call`` at ``due_s``. Failing is an answer too."""
    await asyncio.sleep(due_s - monotonic())
    answer = Answer(call.index, scheduled_s=due_s - start_s, sent_s=monotonic() - start_s)
    timeout_s = http.timeout.read  # httpx itself applies it to each read
    try:
        async with asyncio.timeout(timeout_s):
            await _stream(http, call, due_s, answer)
    except TimeoutError:
        answer.status, answer.error = "timeout", f"no end of the answer within {timeout_s} s"
    except httpx.HTTPError as error:
        answer.status, answer.error = "transport_error", str(error) or type(error).__name__
    except (ValueError, LookupError, TypeError) as error:
        answer.status, answer.error = "not_ours", f"no event of ours: {error!r}"
    answer.e2e_s = monotonic() - due_s
    return answer


async def _stream(http: httpx.AsyncClient, call: Call, due_s: float, answer: Answer) -> None:
    headers = {"x-request-id": call.request_id} if call.request_id else {}
    async with http.stream("POST", "/v1/completions", json=call.body, headers=headers) as response:
        if response.status_code != httpx.codes.OK:
            await response.aread()
            _refused(answer, response)
            return
        last_s: float | None = None
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            token_ids = [t for choice in event.get("choices", ()) for t in choice["token_ids"]]
            if token_ids:
                last_s = _time_tokens(answer, token_ids, due_s, last_s)
            _take(answer, event)


def _time_tokens(answer: Answer, token_ids: list[int], due_s: float, last_s: float | None) -> float:
    """Tokens that came together share the time since the last ones."""
    now = monotonic()
    if last_s is None:
        answer.ttft_s = now - due_s
    else:
        answer.itl_s += [(now - last_s) / len(token_ids)] * len(token_ids)
    answer.token_ids += token_ids
    return now


def _take(answer: Answer, event: Mapping[str, Any]) -> None:
    if "error" in event:
        _fail(answer, event)
    if event.get("usage"):
        answer.prompt_tokens = event["usage"]["prompt_tokens"]
    if "timeline" in event:
        answer.timeline = event["timeline"]


def _refused(answer: Answer, response: httpx.Response) -> None:
    """A server that broke down may say so in plain text."""
    try:
        _fail(answer, response.json())
    except (ValueError, LookupError, TypeError):
        answer.status, answer.error = f"http_{response.status_code}", response.text[:200]


def _fail(answer: Answer, body: Mapping[str, Any]) -> None:
    answer.status, answer.error = body["error"]["type"], body["error"]["message"]


async def _becomes_ready(http: httpx.AsyncClient, within_s: float) -> bool:
    end_s = monotonic() + within_s
    while monotonic() < end_s:
        try:
            if (await http.get("/health")).status_code == httpx.codes.OK:
                return True
        except httpx.TransportError:
            pass
        await asyncio.sleep(POLL_S)
    return False


async def _stdin_lines() -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        yield line


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # whoever asked was killed
        asyncio.run(serve_orders(_stdin_lines(), _say))
