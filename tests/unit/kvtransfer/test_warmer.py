"""A warm-up that a receiver takes and never answers."""

import asyncio
from time import monotonic

import pytest

from kvtransfer import warmer as warmer_module
from kvtransfer import warmth as warmth_module
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


def warmer_of_a_known_path(busy: Busy) -> Warmer:
    path = PathEstimator()
    path.on_ping(0.05, now=0.0)
    warmer = Warmer(SilentChannels(), path, StripePolicy(path), busy, max_bytes=2**20)
    for _ in range(ENOUGH_PINGS):
        warmer.path_changed()
    return warmer


@pytest.mark.parametrize("is_sending", [True, False])
async def test_last_pages_are_warmed_for_unless_the_transfer_has_ended(
    monkeypatch: pytest.MonkeyPatch, is_sending: bool
) -> None:
    for module in (warmer_module, warmth_module):
        monkeypatch.setattr(module, "COLD_AFTER_S", 0.02)
    monkeypatch.setattr(warmer_module, "MOST_S", 0.02)
    busy = Busy()
    if is_sending:
        busy.begin()
    warmer = warmer_of_a_known_path(busy)
    running = asyncio.create_task(warmer.run())
    warmer.expect_later(2**20, at_s=monotonic() + 0.02)
    warmer.frame_leaves()  # of the chunk before
    await asyncio.sleep(0.3)
    assert (warmer.warmup_bytes > 0) == is_sending
    running.cancel()


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
