"""The one thread of a node on which its model computes.

The event loop never blocks on the model, and two steps never run at once. A cancelled caller does
not end a step: ``run`` returns or raises only after the thread has let go of what it was given.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Self, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ComputeThread:
    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call ``function`` on the thread. Cancellation, however often, waits for its end."""
        future = asyncio.wrap_future(self._executor.submit(function, *args, **kwargs))
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            future.exception()  # seen; what the caller gets is its cancellation
            raise cancelled
        return future.result()
