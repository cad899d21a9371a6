"""A drain refuses new requests and waits for those that run."""

import asyncio

import pytest

from pdcore.drain import Drain
from pdcore.errors import NodeDraining


@pytest.mark.parametrize("timeout_s", [0, 60])
async def test_an_idle_node_is_drained_at_once(timeout_s: float) -> None:
    assert await Drain("n").finish(timeout_s)


async def test_it_waits_for_the_last_request() -> None:
    drain = Drain("n")
    with drain.request():
        with drain.request():
            assert drain.num_running == 2
            finishing = asyncio.ensure_future(drain.finish(timeout_s=60))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert drain.num_running == 1 and not finishing.done()
    assert await finishing
    assert drain.num_running == 0


async def test_new_requests_are_refused_by_name_once_it_has_started() -> None:
    drain = Drain("decode-1")
    assert not drain.started
    await drain.finish(timeout_s=60)
    assert drain.started
    with pytest.raises(NodeDraining, match="decode-1 is stopping"), drain.request():
        pytest.fail("not let in")
    assert drain.num_running == 0


async def test_a_request_that_fails_is_over_too() -> None:
    drain = Drain("n")
    with pytest.raises(KeyError), drain.request():
        raise KeyError
    assert await drain.finish(timeout_s=60)


async def test_what_does_not_end_in_time_is_told() -> None:
    drain = Drain("n")
    with drain.request():
        assert not await drain.finish(timeout_s=0)
        assert drain.num_running == 1
