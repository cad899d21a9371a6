"""Bodies are bounded in size, in time and, all together, in memory."""

import asyncio
from collections.abc import Sequence

import pytest
from starlette.requests import Request
from starlette.types import Message

from pdcore.errors import BodyTooLarge, BodyTooSlow, NoCapacity, RequestCancelled
from router.request_body import NUM_WHOLE, BodyReader


def request(*chunks: bytes, ends: bool = True, hangs_up: bool = False) -> Request:
    messages = [part(chunk, True) for chunk in chunks]
    if ends:
        messages.append({"type": "http.disconnect"} if hangs_up else part(b"", False))
    return Request({"type": "http"}, Receive(messages))


def part(body: bytes, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class Receive:
    """Gives the messages; after the last one nothing more comes."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = list(messages)
        self.is_empty = asyncio.Event()

    async def __call__(self) -> Message:
        if not self._messages:
            self.is_empty.set()
            await asyncio.Event().wait()
        return self._messages.pop(0)


async def test_a_body_in_pieces() -> None:
    bodies = BodyReader(6)
    assert await bodies.read(request(b"ab", b"", b"cdef")) == b"abcdef"
    assert bodies.num_bytes == 0


@pytest.mark.parametrize("ends", [True, False])
async def test_one_that_is_too_large(ends: bool) -> None:
    """It is heard to its end if that is near, and not for ever."""
    bodies = BodyReader(6)
    with pytest.raises(BodyTooLarge, match="larger than 6 bytes"):
        await bodies.read(request(b"abcd", b"efg", *([] if ends else [b"x" * 18]), ends=ends))
    assert bodies.num_bytes == 0


async def test_one_that_does_not_come() -> None:
    bodies = BodyReader(6, timeout_s=0.01)
    with pytest.raises(BodyTooSlow, match=r"did not arrive within 0\.01 s"):
        await bodies.read(request(b"ab", ends=False))
    assert bodies.num_bytes == 0


async def test_a_hang_up() -> None:
    with pytest.raises(RequestCancelled, match="hung up while sending"):
        await BodyReader(6).read(request(b"ab", hangs_up=True))


async def test_all_that_come_at_once_have_a_bound() -> None:
    bodies = BodyReader(6)
    async with asyncio.TaskGroup() as group:
        halves = [request(b"abcdef", ends=False) for _ in range(NUM_WHOLE)]
        readings = [group.create_task(bodies.read(half)) for half in halves]
        for half in halves:
            assert isinstance(half.receive, Receive)
            await half.receive.is_empty.wait()
        assert bodies.num_bytes == NUM_WHOLE * 6
        with pytest.raises(NoCapacity, match="too many bodies"):
            await bodies.read(request(b"a"))
        readings.pop().cancel()
        await asyncio.sleep(0)
        assert await bodies.read(request(b"a")) == b"a"
        for reading in readings:
            reading.cancel()
