"""A warm-up that a receiver takes and never answers."""

import asyncio

import pytest

from kvtransfer import warmer as warmer_module
from kvtransfer.path import PathEstimator
from kvtransfer.stripe_policy import StripePolicy
from kvtransfer.warmer import ENOUGH_PINGS, Busy, Warmer
from waiting import until


class SilentChannel:
    """A channel and its stream at once."""

    def stream_stream(self, _method: str) -> "SilentChannel":
        return self

    def __call__(self, *, wait_for_ready: bool) -> "SilentChannel":
        return self

    async def write(self, _message: bytes) -> None: ...

    async def read(self) -> object:
        return await asyncio.get_running_loop().create_future()

    def cancel(self) -> None: ...


class SilentChannels:
    address = "10.0.0.2:7001"

    def first(self, num: int) -> list[SilentChannel]:
        return [SilentChannel() for _ in range(num)]


async def test_it_ends_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmer_module, "MOST_S", 0.02, raising=False)
    path, busy = PathEstimator(), Busy()
    path.on_ping(0.05, now=0.0)
    warmer = Warmer(SilentChannels(), path, StripePolicy(path), busy, max_bytes=2**20)
    running = asyncio.create_task(warmer.run())
    warmer.opened()
    for _ in range(ENOUGH_PINGS):
        warmer.path_changed()
    await until(lambda: warmer.warmup_bytes > 0)
    assert path.in_flight_bytes == 0
    assert not busy.event.is_set()
    running.cancel()
