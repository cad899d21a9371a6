"""Reads the bodies of requests: each within a size and a time, all together within a memory.

Invariant: a client that sends half a body, or one byte a minute, holds nothing that another client
needs. So a body is read before its request takes one of the router's places, and what all bodies
that are still coming hold is bounded by itself.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request

from pdcore.errors import BodyTooLarge, BodyTooSlow, NoCapacity, RequestCancelled

BODY_S = 30.0
NUM_WHOLE = 64  # so many bodies of the largest size may be coming at once


class BodyReader:
    """Shared by all requests. ``max_bytes``: of one body."""

    def __init__(self, max_bytes: int, timeout_s: float = BODY_S) -> None:
        self.num_bytes = 0  # of bodies that are still coming
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def read(self, request: Request) -> bytes:
        """Raises BodyTooLarge, BodyTooSlow, NoCapacity, or RequestCancelled for a hang-up."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._read(request)
        except TimeoutError:
            raise BodyTooSlow(
                f"the body did not arrive within {self._timeout_s:g} s; send it faster"
            ) from None
        except ClientDisconnect:
            raise RequestCancelled("the client hung up while sending") from None

    async def _read(self, request: Request) -> bytes:
        """What is too large is read on for a little, so that the client hears of it."""
        body = bytearray()
        size = 0
        with self._held(body):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= self._max_bytes:
                    self._keep(body, chunk)
                elif size > 4 * self._max_bytes:
                    break
        if size > self._max_bytes:
            raise BodyTooLarge(f"the body is larger than {self._max_bytes} bytes")
        return bytes(body)

    def _keep(self, body: bytearray, chunk: bytes) -> None:
        if self.num_bytes + len(chunk) > NUM_WHOLE * self._max_bytes:
            raise NoCapacity("too many bodies are being sent to the router at once; try again")
        self.num_bytes += len(chunk)
        body += chunk

    @contextmanager
    def _held(self, body: bytearray) -> Iterator[None]:
        try:
            yield
        finally:
            self.num_bytes -= len(body)
