"""Wakes every task that waits for the next change of something. Loses no change:

    change = changes.next()      # taken before looking
    if nothing_to_do():
        await change.wait()

Times here and in the other I/O files are ``time.monotonic()``: the loop's own clock may be coarse
(uvloop counts milliseconds).
"""

import asyncio
from contextlib import suppress
from time import monotonic


class Changes:
    def __init__(self) -> None:
        self._next = asyncio.Event()

    def next(self) -> asyncio.Event:
        return self._next

    def notify(self) -> None:
        self._next.set()
        self._next = asyncio.Event()


async def wait_until(change: asyncio.Event, deadline: float | None) -> None:
    """Wait for ``change``, at most until ``deadline`` (monotonic; None: without limit)."""
    limit_s = None if deadline is None else max(0.0, deadline - monotonic())
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await change.wait()


def raise_if_cancelled() -> None:
    """Raises CancelledError if this task is being cancelled: a library may raise it on its own."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
