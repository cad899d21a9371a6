"""No change is lost between looking and waiting."""

import asyncio
from time import monotonic

from kvtransfer.changes import Changes, wait_until


async def test_every_waiter_wakes() -> None:
    changes = Changes()
    async with asyncio.TaskGroup() as tasks:
        waiters = [tasks.create_task(changes.next().wait()) for _ in range(3)]
        await asyncio.sleep(0)
        changes.notify()
    assert all(waiter.done() for waiter in waiters)


async def test_a_change_after_looking_is_seen() -> None:
    changes = Changes()
    change = changes.next()
    changes.notify()
    await change.wait()
    assert not changes.next().is_set()


async def test_a_deadline_that_passed_ends_the_wait() -> None:
    change = Changes().next()
    await wait_until(change, monotonic() - 1.0)
    assert not change.is_set()
