"""How an answer leaves: as one JSON body, or as server-sent events while it grows.

Invariant: nothing is sent before there is something to say, so an error until then still gets its
proper status. After that an error is an event of the stream, which then ends.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from starlette.types import Send

from pdcore.errors import PdspanError
from pdcore.generation import Usage
from router.answer import TextDelta
from router.http_errors import error_body
from router.responses import Envelope, Json, Shape, usage_json

DONE = b"data: [DONE]\n\n"


class ClientOutput(Protocol):
    """Where one request's answer goes. Also the relay's ``Output``."""

    @property
    def has_begun(self) -> bool: ...
    async def deliver(self, deltas: Sequence[TextDelta]) -> None: ...
    async def finish(self, usage: Usage, timeline: Json | None) -> None: ...
    async def fail(self, error: PdspanError) -> None:
        """Only once it has begun; before that the error is the response."""
        ...


class WholeBody:
    """Collects the text; says nothing before everything is there."""

    has_begun = False

    def __init__(self, send: Send, shape: Shape, envelope: Envelope, num_choices: int) -> None:
        self._send = send
        self._shape = shape
        self._envelope = envelope
        self._choices = [TextDelta(index, "") for index in range(num_choices)]

    async def deliver(self, deltas: Sequence[TextDelta]) -> None:
        for delta in deltas:
            before = self._choices[delta.choice]
            self._choices[delta.choice] = replace(
                delta,
                text=before.text + delta.text,
                token_ids=before.token_ids + delta.token_ids,
            )

    async def finish(self, usage: Usage, timeline: Json | None) -> None:
        body = self._shape.whole(self._envelope, self._choices)
        body["usage"] = usage_json(usage)
        if timeline is not None:
            body["timeline"] = timeline
        await _start(self._send, "application/json")
        await _write(self._send, _encode(body), more=False)

    async def fail(self, error: PdspanError) -> None:
        raise AssertionError("a whole body never begins before it is complete")


class EventStream:
    """Server-sent events as OpenAI's: chunks, perhaps one with usage and timeline, ``[DONE]``."""

    def __init__(self, send: Send, shape: Shape, envelope: Envelope, include_usage: bool) -> None:
        self._send = send
        self._shape = shape
        self._envelope = envelope
        self._include_usage = include_usage
        self._opened: set[int] = set()
        self._has_begun = False

    @property
    def has_begun(self) -> bool:
        return self._has_begun

    async def deliver(self, deltas: Sequence[TextDelta]) -> None:
        """One event per delta that has text or ends its choice."""
        chunks = [chunk for delta in deltas for chunk in self._chunks(delta)]
        if chunks:
            await self._begin()
            await _write(self._send, b"".join(map(self._event, chunks)))

    async def finish(self, usage: Usage, timeline: Json | None) -> None:
        await self._begin()
        last = self._shape.chunk(self._envelope, [])
        if self._include_usage:
            last["usage"] = usage_json(usage)
        if timeline is not None:
            last["timeline"] = timeline
        wanted = self._include_usage or timeline is not None
        await _write(self._send, (_event(last) if wanted else b"") + DONE, more=False)

    async def fail(self, error: PdspanError) -> None:
        await _write(self._send, _event(error_body(error)) + DONE, more=False)

    def _chunks(self, delta: TextDelta) -> list[Json]:
        shows_tokens = self._envelope.with_token_ids and bool(delta.token_ids)
        if not (delta.text or delta.finish_reason or shows_tokens):
            return []
        chunks = []
        if delta.choice not in self._opened:
            self._opened.add(delta.choice)
            opening = self._shape.opening(self._envelope, delta.choice)
            chunks += [] if opening is None else [opening]
        return [*chunks, self._shape.chunk(self._envelope, [delta])]

    def _event(self, chunk: Json) -> bytes:
        return _event(chunk | {"usage": None} if self._include_usage else chunk)

    async def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            await _start(self._send, "text/event-stream; charset=utf-8")


def _event(value: Json) -> bytes:
    return b"data: " + _encode(value) + b"\n\n"


def _encode(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


async def _start(send: Send, content_type: str) -> None:
    headers = [(b"content-type", content_type.encode()), (b"cache-control", b"no-store")]
    if content_type.startswith("text/event-stream"):
        headers.append((b"x-accel-buffering", b"no"))  # proxies pass events on at once
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _write(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})
