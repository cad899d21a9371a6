"""The router as it runs, over sockets: the openai client, hang-ups, large bodies, draining."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from fake_nodes import Generating, Pair, eventually, forever, token_of, two_tokens, until
from pdcore.errors import ConfigError, NoCapacity, TransferStalled
from pdcore.generation import FinishReason
from pdcore.settings import NodeSettings, QueueSettings
from router import app as app_module
from router import http_connection
from router.app import serve
from router_process import RunningRouter, is_healthy, running_router, settings_for

pytestmark = pytest.mark.timeout(30)

HI: list[Any] = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[RunningRouter]:
    async with Pair() as pair, running_router(pair, tmp_path) as router:
        yield router


@pytest.fixture
async def client(router: RunningRouter) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{router.url}/v1", api_key="none", max_retries=0
    ) as client:
        yield client


async def test_the_openai_client_plain(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["tiny"]
    assert (await client.models.retrieve("tiny")).id == "tiny"
    completion = await client.completions.create(model="tiny", prompt="hi", n=2)
    assert [choice.text for choice in completion.choices] == ["ab", "ab"]
    assert completion.usage is not None and completion.usage.completion_tokens == 4
    chat = await client.chat.completions.create(model="tiny", messages=HI, max_tokens=2)
    assert chat.choices[0].message.content == "ab"
    assert chat.choices[0].message.role == "assistant"
    assert chat.choices[0].finish_reason == "length"
    assert chat.usage is not None and chat.usage.prompt_tokens_details is not None
    assert chat.usage.prompt_tokens_details.cached_tokens == 2


async def test_the_openai_client_streamed(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="tiny", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "ab"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 2

    completion = await client.completions.create(model="tiny", prompt=[5, 6], stream=True)
    assert "".join([chunk.choices[0].text async for chunk in completion]) == "ab"


async def test_the_openai_client_sees_our_fields(client: openai.AsyncOpenAI) -> None:
    extra = {"timeline": True, "kv_transfer_params": {"mode": "sequential"}}
    completion = await client.completions.create(model="tiny", prompt="hi", extra_body=extra)
    timeline: Any = completion.model_extra
    assert timeline["timeline"]["transfer"]["mode"] == "sequential"


async def test_the_openai_client_raises_its_own_errors(
    router: RunningRouter, client: openai.AsyncOpenAI
) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
        await client.completions.create(model="gpt", prompt="hi")
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        await client.completions.create(model="tiny", prompt="hi", temperature=9)
    assert caught.value.param == "temperature"

    async def full(_: Generating) -> None:
        raise NoCapacity("no room to decode")

    router.pair.decode.script = full
    with pytest.raises(openai.InternalServerError, match="no room") as refused:
        await client.completions.create(model="tiny", prompt="hi", stream=True)
    assert refused.value.status_code == 503
    assert refused.value.response.headers["retry-after"] == "1"


async def test_an_error_in_a_stream_reaches_the_openai_client(
    router: RunningRouter, client: openai.AsyncOpenAI
) -> None:
    async def break_off(generating: Generating) -> None:
        await generating.tokens(token_of("a"))
        raise TransferStalled("no byte moved")

    router.pair.decode.script = break_off
    stream = await client.completions.create(model="tiny", prompt="hi", stream=True)
    text = ""
    with pytest.raises(openai.APIError, match="no byte moved"):
        async for chunk in stream:
            text += chunk.choices[0].text
    assert text == "a"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_frees_both_nodes(router: RunningRouter, stream: bool) -> None:
    async def one_then_nothing(generating: Generating) -> None:
        await generating.tokens(token_of("a"))
        await forever(generating)

    pair = router.pair
    pair.decode.script, pair.prefill.script = one_then_nothing, forever
    body = {"prompt": "hi", "stream": stream}
    async with httpx.AsyncClient() as client, asyncio.TaskGroup() as group:
        posting = group.create_task(client.post(f"{router.url}/v1/completions", json=body))
        await until(lambda: pair.decode.calls and pair.prefill.calls)
        posting.cancel()
    await pair.let_go()
    async with httpx.AsyncClient() as client:

        async def is_counted() -> bool:
            text = (await client.get(f"{router.url}/metrics")).text
            return 'status="499"} 1.0' in text and "pdspan_router_in_flight 0.0" in text

        await eventually(is_counted)


async def endless(generating: Generating) -> None:
    while True:
        await generating.tokens(*[token_of("a")] * 4096)


@contextmanager
def silent_client(router: RunningRouter, **fields: object) -> Iterator[None]:
    """Asks for a stream and never reads a byte of it."""
    body = json.dumps({"prompt": "hi", "stream": True} | fields).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", router.port))
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: router\r\n")
        client.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        yield


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes little for a client that does not read."""
    listen = app_module._listen

    def listen_so(node: NodeSettings) -> socket.socket:
        listener = listen(node)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr(app_module, "_listen", listen_so)


async def test_a_client_that_reads_nothing_holds_nothing_beyond_its_deadline(
    small_buffers: None, tmp_path: Path
) -> None:
    async with Pair() as pair, running_router(pair, tmp_path) as router:
        pair.decode.script = endless
        with silent_client(router, timeout=1):
            await until(lambda: pair.decode.calls)
            await pair.let_go()
            async with httpx.AsyncClient() as client:

                async def is_counted() -> bool:
                    text = (await client.get(f"{router.url}/metrics")).text
                    return 'status="504"} 1.0' in text and "pdspan_router_in_flight 0.0" in text

                await eventually(is_counted)


async def test_a_client_that_does_not_read_is_disconnected(
    small_buffers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "UNREAD_S", 1)
    async with Pair() as pair, running_router(pair, tmp_path) as router:
        pair.decode.script = endless
        with silent_client(router):
            await until(lambda: pair.decode.calls)
            await pair.let_go()


@pytest.mark.parametrize("head", [b"", b"GET /health HTTP/1.1\r\nHost: "])
async def test_a_connection_whose_head_does_not_come_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 0.2)
    async with Pair() as pair, running_router(pair, tmp_path) as router:
        reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
        for byte in head:
            writer.write(bytes([byte]))
            await writer.drain()
        assert await reader.read() == b""
        writer.close()


async def test_a_head_in_time_is_followed_by_as_long_an_answer_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 0.2)

    async def slow(generating: Generating) -> None:
        await asyncio.sleep(0.4)
        await two_tokens(generating)

    async with Pair() as pair, running_router(pair, tmp_path) as router:
        pair.decode.script = slow
        async with httpx.AsyncClient() as client:
            for _ in range(2):  # on one connection
                response = await client.post(f"{router.url}/v1/completions", json={"prompt": "hi"})
                assert response.status_code == 200


async def test_a_large_body_gets_its_answer(router: RunningRouter) -> None:
    async with httpx.AsyncClient() as client:
        body = {"prompt": "x" * (3 * 2**20)}
        response = await client.post(f"{router.url}/v1/completions", json=body)
        assert response.status_code == 413
        again = await client.post(f"{router.url}/v1/completions", json={"prompt": "hi"})
        assert again.status_code == 200


async def test_head_has_no_body(router: RunningRouter) -> None:
    async with httpx.AsyncClient() as client:
        for path in ("/health", "/metrics", "/health"):  # on one connection
            response = await client.head(router.url + path)
            assert (response.status_code, response.content) == (200, b"")
            assert int(response.headers["content-length"]) > 0


async def test_draining_finishes_what_runs_and_takes_nothing_new(tmp_path: Path) -> None:
    may_end = asyncio.Event()

    async def slow(generating: Generating) -> None:
        await generating.tokens(token_of("a"))
        await may_end.wait()
        await generating.tokens(token_of("b"), end=FinishReason.LENGTH)
        await generating.finished()

    async with Pair() as pair, running_router(pair, tmp_path) as router:
        pair.decode.script = slow
        url, body = f"{router.url}/v1/completions", {"prompt": "hi"}
        async with httpx.AsyncClient() as client, asyncio.TaskGroup() as group:
            running = group.create_task(client.post(url, json=body))
            await until(lambda: pair.decode.calls)
            router.stop.set()
            await eventually(lambda: is_refused(client, router.url))
            refused = await client.post(url, json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "node_draining")
            may_end.set()
            assert (await running).json()["choices"][0]["text"] == "ab"


@pytest.mark.parametrize("stream", [False, True])
async def test_what_runs_longer_than_the_drain_ends_with_an_error(
    tmp_path: Path, stream: bool
) -> None:
    async def one_then_nothing(generating: Generating) -> None:
        await generating.tokens(token_of("a"))
        await forever(generating)

    async with Pair() as pair:
        pair.decode.script, pair.prefill.script = one_then_nothing, forever
        settings = settings_for(pair, queue=QueueSettings(drain_s=0.5))
        async with (
            running_router(pair, tmp_path, settings) as router,
            httpx.AsyncClient() as client,
            asyncio.TaskGroup() as group,
        ):
            body = {"prompt": "hi", "stream": stream}
            running = group.create_task(client.post(f"{router.url}/v1/completions", json=body))
            await until(lambda: pair.decode.calls)
            router.stop.set()
            response = await running
    assert response.status_code == (200 if stream else 503)
    assert '"code":"node_draining"' in response.text
    assert response.text.endswith("data: [DONE]\n\n") is stream


async def is_refused(client: httpx.AsyncClient, url: str) -> bool:
    return not await is_healthy(client, url)


async def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    async with Pair() as pair:
        settings = settings_for(pair)
        async with running_router(pair, tmp_path, settings):
            with pytest.raises(ConfigError, match="router: cannot listen on"):
                await serve(settings, settings.node("router"), tmp_path, asyncio.Event())
