"""Work whose time grows with what a client sent, kept off the event loop when that is much.

A thread helps with Python code, which is interrupted every few milliseconds, and with foreign code
that gives up the interpreter lock. It does not with foreign code that keeps it: such calls need a
bound of their own (``router.max_body_bytes`` for JSON).
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

INLINE_SIZE = 4096  # smaller work is done at once: a thread would cost more than it saves


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """``work()``, on a thread if ``size`` (bytes or characters) is more than a little."""
    return work() if size <= INLINE_SIZE else await asyncio.to_thread(work)
