"""A receiver that drains while a warm-up's silence is just being ended."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from kvtransfer import path_service
from kvtransfer.path_service import PathService
from pdcore.cluster import NodeName
from pdcore.settings import TransferSettings


class SilentStream:
    """As its servicer sees it: nothing comes, and the status is kept."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None

    def peer(self) -> str:
        return "ipv4:10.0.0.2:7001"

    async def read(self) -> object:
        return await asyncio.get_running_loop().create_future()

    async def abort(self, code: grpc.StatusCode, *_: object, **__: object) -> None:
        self.code = code
        raise grpc.aio.AbortError


async def nothing() -> AsyncIterator[bytes]:
    return
    yield


@pytest.mark.parametrize("num_turns", range(6))  # of the loop, until the drain begins
async def test_a_drain_at_any_moment(num_turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_service, "IDLE_S", 0.0)
    service, stream = PathService(NodeName("decode-0"), TransferSettings()), SilentStream()
    warm = asyncio.create_task(service.warm(nothing(), stream))
    for _ in range(num_turns):
        await asyncio.sleep(0)
    service.close()
    with pytest.raises(grpc.aio.AbortError):
        await warm
    assert stream.code is not None
