"""Prompts that wait for pages: in order, all pages at once, bounded; and what Run sees of one."""

import asyncio

import pytest

from fake_engine import FakeEngine
from pdcore.errors import InternalError, NoCapacity, PromptTooLong
from prefill_node.queue import Job, PrefillQueue
from sample_request import request


def queue(engine: FakeEngine, max_queued: int = 8) -> PrefillQueue:
    return PrefillQueue(engine.pool, engine.prefix, engine.layout, max_queued)


def job(num_prompt: int = 4) -> Job:
    return Job(request(num_prompt))


def test_a_job_gets_the_pages_of_its_whole_prompt() -> None:
    engine = FakeEngine(8, page_tokens=4)
    waiting = queue(engine)
    waiting.add(asked := job(9))
    assert waiting.admit() == [asked]
    assert len(set(asked.admitted.pages)) == 3
    assert (asked.cached_tokens, asked.admitted.num_computed) == (0, 0)
    assert len(waiting) == 0


def test_a_job_that_does_not_fit_takes_nothing() -> None:
    engine = FakeEngine(4, page_tokens=4)
    waiting = queue(engine)
    assert engine.pool.take(2) is not None
    waiting.add(asked := job(9))
    assert waiting.admit() == []
    assert asked.sequence is None
    assert engine.pool.counts().used == 2
    assert len(waiting) == 1


def test_nobody_overtakes_the_head() -> None:
    engine = FakeEngine(4, page_tokens=4)
    waiting = queue(engine)
    held = engine.pool.take(2)
    assert held is not None
    for asked in (jobs := [job(9), job(1)]):
        waiting.add(asked)
    assert waiting.admit() == []
    engine.pool.release(held)
    assert waiting.admit() == jobs


def test_a_cached_prefix_is_shared_and_the_rest_is_fresh() -> None:
    engine = FakeEngine(8, page_tokens=4)
    waiting = queue(engine)
    waiting.add(first := job(8))
    waiting.admit()
    sequence = first.admitted
    engine.prefix.insert(sequence.token_ids, "", sequence.pages, 8)
    waiting.add(second := job(8))
    waiting.admit()
    assert (second.cached_tokens, second.admitted.num_computed) == (4, 4)
    assert second.admitted.pages[0] == sequence.pages[0]
    assert second.admitted.pages[1] != sequence.pages[1]


def test_waiting_keeps_no_reference_to_a_cached_prefix() -> None:
    engine = FakeEngine(4, page_tokens=4)
    waiting = queue(engine)
    waiting.add(first := job(4))
    waiting.admit()
    engine.prefix.insert(first.admitted.token_ids, "", first.admitted.pages, 4)
    engine.pool.release(first.admitted.give_up_pages())
    held = engine.pool.take(2)
    waiting.add(job(16))
    assert waiting.admit() == []
    assert held and engine.pool.counts().used == 2
    engine.pool.check()


def test_a_prompt_that_can_never_fit_is_refused_with_both_numbers() -> None:
    waiting = queue(FakeEngine(2, page_tokens=4))
    with pytest.raises(PromptTooLong, match="9 tokens need 3 KV pages; the prefill node has 2"):
        waiting.add(job(9))
    assert len(waiting) == 0


def test_a_full_queue_refuses() -> None:
    waiting = queue(FakeEngine(8), max_queued=2)
    waiting.add(job())
    waiting.add(job())
    with pytest.raises(NoCapacity, match="2 prompts wait"):
        waiting.add(job())
    waiting.admit()
    waiting.add(job())


def test_a_discarded_job_is_gone_and_discarding_twice_is_harmless() -> None:
    engine = FakeEngine(8)
    waiting = queue(engine)
    waiting.add(asked := job())
    waiting.discard(asked)
    waiting.discard(asked)
    assert waiting.admit() == []
    assert engine.pool.counts().used == 0


async def all_of(asked: Job) -> list[int]:
    return [num_final async for num_final in asked.progress()]


def admitted(num_prompt: int = 4) -> Job:
    engine = FakeEngine(8)
    waiting = queue(engine)
    waiting.add(asked := job(num_prompt))
    waiting.admit()
    asked.notify()
    return asked


async def test_progress_starts_with_admission_and_ends_with_the_whole_prompt() -> None:
    asked = admitted(8)
    progress = asked.progress()
    assert await anext(progress) == 0
    asked.admitted.num_computed = 5
    asked.notify()
    assert await anext(progress) == 5
    asked.admitted.num_computed, asked.first_tokens = 8, (1,)
    asked.notify()
    assert [num_final async for num_final in progress] == [8]


async def test_progress_of_a_job_that_is_queued_waits() -> None:
    asked = job()
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(all_of(asked))
        await asyncio.sleep(0)
        asked.notify()  # nothing to see yet
        await asyncio.sleep(0)
        assert not reader.done()
        reader.cancel()


async def test_a_slow_reader_still_hears_of_the_last_token() -> None:
    """The job finishes while its reader is busy with the number before."""
    asked = admitted(8)
    progress = asked.progress()
    assert await anext(progress) == 0
    asked.admitted.num_computed, asked.first_tokens = 8, (1,)
    asked.notify()
    assert [num_final async for num_final in progress] == [8]


async def test_a_reader_that_comes_late_hears_the_last_number() -> None:
    asked = admitted(8)
    asked.admitted.num_computed, asked.first_tokens = 8, (1,)
    asked.notify()
    assert await all_of(asked) == [8]


async def test_progress_raises_what_the_job_failed_with() -> None:
    asked = admitted()
    progress = asked.progress()
    await anext(progress)
    asked.fail(InternalError("the step failed"))
    with pytest.raises(InternalError, match="the step failed"):
        await anext(progress)
