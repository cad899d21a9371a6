"""What a test waits for when nothing announces it, and errors of work that runs beside it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def raises(kind: type[Exception], work: Awaitable[object]) -> Exception:
    with pytest.raises(kind) as caught:
        await work
    return caught.value
