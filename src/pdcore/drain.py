"""Ending without losing a request: new ones are refused, running ones are waited for."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pdcore.errors import NodeDraining


class Drain:
    """Counts the requests of one process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._num_running = 0
        self._started = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def started(self) -> bool:
        return self._started

    @property
    def num_running(self) -> int:
        return self._num_running

    @contextmanager
    def request(self) -> Iterator[None]:
        """Hold this while a request runs. Raises NodeDraining once the drain has started."""
        if self._started:
            raise NodeDraining(f"{self._name} is stopping and takes no new requests")
        self._num_running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._num_running -= 1
            if self._num_running == 0:
                self._idle.set()

    async def finish(self, timeout_s: float) -> bool:
        """Refuse new requests and wait for the running ones; False if some still run after it."""
        self._started = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        return self._num_running == 0
