"""The compute thread: one, and nobody takes back what it was given before it has let go."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from pdcore.compute import ComputeThread


@pytest.fixture
def compute() -> Iterator[ComputeThread]:
    with ComputeThread() as thread:
        yield thread


class Held:
    """A function that stays on the thread until it is let go."""

    def __init__(self, error: Exception | None = None) -> None:
        self.started = asyncio.Event()
        self.has_ended = False
        self._let_go = threading.Event()
        self._error = error
        self._events = asyncio.get_running_loop()

    def __call__(self) -> str:
        self._events.call_soon_threadsafe(self.started.set)
        assert self._let_go.wait(10)
        self.has_ended = True
        if self._error is not None:
            raise self._error
        return "done"

    def let_go(self) -> None:
        self._let_go.set()


async def test_it_returns_what_the_function_returns(compute: ComputeThread) -> None:
    def divide(a: int, *, by: int) -> int:
        return a // by

    assert await compute.run(divide, 6, by=3) == 2


async def test_it_raises_what_the_function_raises(compute: ComputeThread) -> None:
    with pytest.raises(ZeroDivisionError):
        await compute.run(lambda: 1 // 0)
    assert await compute.run(lambda: 1) == 1


async def test_every_call_is_on_the_one_thread(compute: ComputeThread) -> None:
    names = {await compute.run(lambda: threading.current_thread().name) for _ in range(5)}
    assert len(names) == 1
    assert names != {threading.current_thread().name}


async def test_calls_run_one_after_the_other(compute: ComputeThread) -> None:
    held = Held()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(compute.run(held))
        second = tasks.create_task(compute.run(lambda: held.has_ended))
        await held.started.wait()
        held.let_go()
    assert (first.result(), second.result()) == ("done", True)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_cancellation_waits_for_the_function(compute: ComputeThread, times: int) -> None:
    """However often: the caller gives pages back as soon as ``run`` ends."""
    held = Held()
    task = asyncio.ensure_future(compute.run(held))
    await held.started.wait()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()
    held.let_go()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert held.has_ended


async def test_a_cancelled_function_that_fails_is_still_cancelled(
    compute: ComputeThread, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held(ZeroDivisionError())
    task = asyncio.ensure_future(compute.run(held))
    await held.started.wait()
    task.cancel()
    held.let_go()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    await asyncio.sleep(0)
    assert not caplog.records
    assert await compute.run(lambda: 1) == 1


async def test_leaving_waits_for_what_runs() -> None:
    with ComputeThread() as compute:
        held = Held()
        task = asyncio.ensure_future(compute.run(held))
        await held.started.wait()
        held.let_go()
    assert held.has_ended
    assert await task == "done"
