"""Stands for ``ComputeThread``: a step stays in flight until the test lets it end.

The work is done at the very end of the flight, so whatever the test did meanwhile to a page that
the step still uses is seen by the step.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from pdcore.errors import PdspanError


class GatedCompute:
    def __init__(self) -> None:
        self._work: Callable[[], Any] | None = None
        self._done: asyncio.Future[Any] | None = None
        self.args: tuple[Any, ...] = ()  # of the step in flight

    @property
    def is_busy(self) -> bool:
        return self._work is not None

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        assert self._work is None, "one step at a time"
        self.args = args
        self._work = lambda: function(*args)
        self._done = asyncio.get_running_loop().create_future()
        return await self._done

    def finish(self) -> None:
        """Do the work of the step in flight. An AssertionError of the work is the test's."""
        assert self._work is not None and self._done is not None
        work, self._work = self._work, None
        try:
            self._done.set_result(work())
        except PdspanError as error:
            self._done.set_exception(error)


async def settle() -> None:
    """Let every task run until it waits for something that only the test can do."""
    for _ in range(10):
        await asyncio.sleep(0)
