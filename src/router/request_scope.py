"""Around every HTTP request: its id, and its place in the metrics.

``X-Request-Id`` is taken from the client when it is harmless (it goes into logs and to the nodes),
drawn otherwise, and echoed on every response.
"""

import re
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pdcore.errors import PdspanError
from pdcore.generation import RequestId
from router.metrics import RouterMetrics

_HARMLESS_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)
_ENDPOINTS = ("/v1/completions", "/v1/chat/completions", "/v1/models", "/health", "/version")


class RequestScope:
    """ASGI middleware, outermost."""

    def __init__(self, app: ASGIApp, metrics: RouterMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope).get("x-request-id"))
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        status = 500

        async def tagged(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, tagged)
        finally:
            status = state.get("broken_status", status)
            self._metrics.requests.labels(_endpoint(scope["path"]), str(status)).inc()


def request_id_of(scope: Scope) -> RequestId:
    return RequestId(scope["state"]["request_id"])


def broke(scope: Scope, error: PdspanError) -> None:
    """The response began well and ended with ``error``: count it as that."""
    scope["state"]["broken_status"] = error.http_status


def _request_id(given: str | None) -> RequestId:
    harmless = given is not None and _HARMLESS_ID.fullmatch(given)
    return RequestId(given if given is not None and harmless else uuid4().hex)


def _endpoint(path: str) -> str:
    """A label from a short list: any path may be asked for, and each label is kept for ever."""
    return path if path in _ENDPOINTS else "other"
