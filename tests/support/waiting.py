"""What a test waits for when nothing announces it, and errors of work that runs beside it."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def wait_until(is_true: Callable[[], bool], timeout_s: float = 20) -> None:
    """For what happens in another process."""
    end_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < end_s, f"not true within {timeout_s} s"
        time.sleep(0.01)


async def raises(kind: type[Exception], work: Awaitable[object]) -> Exception:
    with pytest.raises(kind) as caught:
        await work
    return caught.value
