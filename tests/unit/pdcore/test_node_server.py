"""A node's background work, and who it says it is."""

import asyncio

import pytest

from pdcore.cluster import NodeRole
from pdcore.kv_layout import KvLayout
from pdcore.node_server import background, describe
from pdcore.settings import ClusterSettings, ModelSettings, NodeSettings
from pdcore.version import __version__

LAYOUT = KvLayout("m", 1, 1, 8, 16, "float32")


async def forever(ended: list[str]) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        ended.append("ended")


async def test_background_work_ends_with_its_block() -> None:
    ended: list[str] = []
    async with background(forever(ended), forever(ended)):
        await asyncio.sleep(0)
    assert ended == ["ended", "ended"]


async def test_work_that_fails_ends_the_block_and_all_other_work() -> None:
    """Not swallowed: the process ends and says why."""
    ended: list[str] = []
    let_it_fail = asyncio.Event()

    async def fails() -> None:
        await let_it_fail.wait()
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        async with background(fails(), forever(ended)):
            let_it_fail.set()
            await asyncio.get_running_loop().create_future()
    assert caught.group_contains(ZeroDivisionError)
    assert ended == ["ended"]


async def test_a_block_that_fails_ends_its_background_work() -> None:
    ended: list[str] = []
    with pytest.raises(ExceptionGroup) as caught:
        async with background(forever(ended)):
            await asyncio.sleep(0)
            raise KeyError
    assert caught.group_contains(KeyError)
    assert ended == ["ended"]


def test_each_life_of_a_node_has_its_own_epoch() -> None:
    settings = ClusterSettings(model=ModelSettings("models/tiny", served_name="chat"))
    node = NodeSettings("d", NodeRole.DECODE, "0.0.0.0:7001", advertise="d.example:7001")
    first, second = (describe(settings, node, LAYOUT, 4096) for _ in range(2))
    assert first.epoch != second.epoch
    assert (first.name, first.role, first.address) == ("d", NodeRole.DECODE, "d.example:7001")
    assert (first.model, first.max_tokens, first.version) == ("chat", 4096, __version__)
    assert first.layout == LAYOUT
