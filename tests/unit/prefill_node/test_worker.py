"""The worker, step by step: chunks, batches, and what becomes of pages when a job leaves."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from fake_engine import FakeEngine, first_tokens
from gated_compute import GatedCompute, settle
from pdcore.errors import InternalError, NoCapacity, PromptTooLong
from pdcore.metrics import NodeMetrics
from pdcore.settings import EngineSettings, QueueSettings
from prefill_node.queue import Job
from prefill_node.worker import PrefillWorker
from sample_request import request


class Node:
    def __init__(
        self, num_pages: int = 16, page_tokens: int = 4, max_queued: int = 8, **engine: int
    ) -> None:
        self.engine = FakeEngine(num_pages, page_tokens)
        self.compute = GatedCompute()
        self.metrics = NodeMetrics()
        self.worker = PrefillWorker(
            self.engine,
            self.compute,
            EngineSettings(**engine),
            QueueSettings(max_queued=max_queued),
            self.metrics,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.worker.run())
            yield
            task.cancel()

    async def steps(self, num: int = 1) -> None:
        for _ in range(num):
            self.compute.finish()
            await settle()

    def shapes(self) -> list[list[int]]:
        """Tokens of each slice of each step so far."""
        return [[piece.num_tokens for piece in slices] for slices in self.engine.steps]

    def in_use(self) -> int:
        self.engine.pool.check()
        counts = self.engine.pool.counts()
        return counts.used + counts.draining


async def failure(job: Job) -> InternalError:
    with pytest.raises(InternalError) as caught:
        async for _ in job.progress():
            pass
    return caught.value


async def test_a_prompt_gives_the_first_token_of_each_choice() -> None:
    node = Node()
    asked = request(5, num_choices=3)
    async with node.running():
        job = node.worker.submit(asked)
        await settle()
        assert (node.worker.num_queued, node.worker.num_running) == (0, 1)
        await node.steps()
    assert job.first_tokens == first_tokens(asked)
    assert job.started_s is not None and job.finished_s is not None
    assert node.worker.num_running == 0


async def test_a_finished_prompt_keeps_its_pages_until_its_run_leaves() -> None:
    node = Node()
    async with node.running():
        job = node.worker.submit(request(5))
        await settle()
        assert node.worker.num_sending == 0
        await node.steps()
        assert (node.in_use(), node.worker.num_sending) == (2, 1)
        node.worker.leave(job)
        assert (node.in_use(), node.worker.num_sending) == (0, 0)
        node.worker.leave(job)
    assert node.engine.pool.counts().cached == 1


async def test_a_long_prompt_goes_in_chunks_and_the_next_ones_fill_the_budget() -> None:
    node = Node(step_tokens=8)
    async with node.running():
        for num_prompt in (10, 3, 9):
            node.worker.submit(request(num_prompt, cache_salt=str(num_prompt)))
        await settle()
        await node.steps(3)
        assert not node.compute.is_busy
    assert node.shapes() == [[8], [2, 3, 3], [6]]


@dataclass(frozen=True)
class Route:
    rate_bytes_per_s: float | None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Node], None]:
    """For a node whose steps take a second for each token."""

    def install(node: Node) -> None:
        monkeypatch.setattr(
            "prefill_node.worker.monotonic", lambda: float(node.engine.num_computed_tokens)
        )

    return install


TOKEN_BYTES = 16  # of the fake engine's KV


@pytest.mark.parametrize(
    ("route", "shapes"),
    [
        (None, [[16], [16]]),
        (Route(None), [[16], [16]]),
        (
            Route(2 * TOKEN_BYTES),
            [[16], [8], [4], [4]],
        ),  # two tokens' KV a second
        (Route(1000 * TOKEN_BYTES), [[16], [16]]),
    ],
    ids=["pages leave later", "unknown link", "link", "fast link"],
)
async def test_the_end_of_a_prompt_is_cut_for_a_link_that_would_be_busy_long(
    clock: Callable[[Node], None], route: Route | None, shapes: list[list[int]]
) -> None:
    node = Node(step_tokens=16)
    clock(node)
    async with node.running():
        job = node.worker.submit(request(32), route)
        await settle()
        await node.steps(len(shapes))
        assert job.first_tokens and not node.compute.is_busy
    assert node.shapes() == shapes


@pytest.mark.parametrize("waits", ["running", "queued"])
async def test_nobody_else_waits_for_a_cut(clock: Callable[[Node], None], waits: str) -> None:
    """The rest of the step is theirs, or their pages come back the sooner."""
    node = Node(num_pages=8 if waits == "queued" else 16, step_tokens=16)
    clock(node)
    async with node.running():
        for salt in "ab":
            node.worker.submit(request(32, cache_salt=salt), Route(2 * TOKEN_BYTES))
        await settle()
        assert node.worker.num_queued == (waits == "queued")
        await node.steps(2)
    assert node.shapes()[:2] == [[16], [16]]


async def test_max_sequences_bounds_a_step() -> None:
    node = Node(max_sequences=2)
    async with node.running():
        for salt in "abc":
            node.worker.submit(request(2, cache_salt=salt))
        await settle()
        await node.steps(2)
    assert node.shapes() == [[2, 2], [2]]


async def test_a_second_prompt_computes_only_what_the_first_did_not() -> None:
    node = Node()
    async with node.running():
        node.worker.submit(request(9))
        await settle()
        await node.steps()
        job = node.worker.submit(request(9))
        await settle()
        await node.steps()
    assert node.shapes() == [[9], [1]]
    assert job.cached_tokens == 8


async def test_equal_prompts_under_another_salt_share_nothing() -> None:
    node = Node()
    async with node.running():
        for salt in "ab":
            node.worker.submit(request(9, cache_salt=salt))
            await settle()
            await node.steps()
    assert node.shapes() == [[9], [9]]


async def test_pages_of_a_job_in_a_step_drain_until_the_step_ends() -> None:
    node = Node()
    async with node.running():
        job = node.worker.submit(request(5))
        await settle()
        node.worker.leave(job)
        counts = node.engine.pool.counts()
        assert (counts.used, counts.draining) == (0, 2)
        node.worker.leave(job)
        await node.steps()
        assert node.in_use() == 0
        assert not node.compute.is_busy
    assert job.first_tokens == ()


async def test_a_job_between_its_chunks_leaves_at_once() -> None:
    node = Node(step_tokens=4, max_sequences=1)
    async with node.running():
        first = node.worker.submit(request(4, cache_salt="a"))
        second = node.worker.submit(request(8, cache_salt="b"))
        await settle()
        node.worker.leave(second)
        assert node.in_use() == 1
        await node.steps()
        assert first.first_tokens and not node.compute.is_busy


async def test_a_job_that_waits_leaves() -> None:
    node = Node(num_pages=2)
    async with node.running():
        first = node.worker.submit(request(8, cache_salt="a"))
        second = node.worker.submit(request(8, cache_salt="b"))
        await settle()
        assert node.worker.num_queued == 1
        node.worker.leave(second)
        assert node.worker.num_queued == 0
        await node.steps()
        node.worker.leave(first)
        await settle()
        assert not node.compute.is_busy
    assert node.in_use() == 0


async def test_who_waits_behind_a_head_that_leaves_is_woken() -> None:
    """The pages that the head waits for may not come back for long: they are being sent."""
    node = Node(num_pages=3)
    async with node.running():
        node.worker.submit(request(8, cache_salt="a"))
        await settle()
        await node.steps()
        head = node.worker.submit(request(8, cache_salt="b"))
        small = node.worker.submit(request(4, cache_salt="c"))
        await settle()
        assert not node.compute.is_busy
        node.worker.leave(head)
        await settle()
        assert node.compute.is_busy
        await node.steps()
        assert small.first_tokens


async def test_pages_that_come_back_admit_who_waits() -> None:
    node = Node(num_pages=2)
    async with node.running():
        first = node.worker.submit(request(8, cache_salt="a"))
        second = node.worker.submit(request(8, cache_salt="b"))
        await settle()
        await node.steps()
        assert not node.compute.is_busy
        node.worker.leave(first)
        await settle()
        await node.steps()
        assert second.first_tokens


async def test_a_failing_step_fails_its_jobs_and_leaves_their_pages_to_them() -> None:
    node = Node(max_sequences=1)
    async with node.running():
        failing = node.worker.submit(request(4, cache_salt="a"))
        waiting = node.worker.submit(request(4, cache_salt="b"))
        await settle()
        node.engine.fail_next = InternalError("no token can be sampled")
        await node.steps()
        assert "no token can be sampled" in str(await failure(failing))
        assert node.in_use() == 2
        node.worker.leave(failing)
        await node.steps()
        assert waiting.first_tokens
        node.worker.leave(waiting)
    assert node.in_use() == 0


async def test_a_row_without_a_token_fails_its_own_job_only() -> None:
    """And the cached pages that it started from, which may be the cause, are forgotten."""
    node = Node()
    async with node.running():
        first = node.worker.submit(request(9))
        await settle()
        await node.steps()
        node.worker.leave(first)
        bad = node.worker.submit(request(9, request_id="bad"))
        good = node.worker.submit(request(4, cache_salt="b", request_id="good"))
        node.engine.broken.add(bad.request.request_id)
        await settle()
        assert bad.cached_tokens == 8
        await node.steps()
        assert "no token can be sampled" in str(await failure(bad))
        assert good.first_tokens
        node.worker.leave(bad)
        node.worker.leave(good)
    assert node.in_use() == 0
    assert node.engine.prefix.match(request(9).prompt_token_ids, "") == []


async def test_a_failed_step_leaves_nothing_in_the_prefix_cache() -> None:
    node = Node()
    async with node.running():
        job = node.worker.submit(request(8))
        await settle()
        node.engine.fail_next = InternalError("x")
        await node.steps()
        node.worker.leave(job)
    assert node.engine.pool.counts().free == 16


async def test_a_defect_ends_the_worker() -> None:
    node = Node()

    async def defective(*_: object) -> None:
        raise ZeroDivisionError

    node.compute.run = defective  # type: ignore[method-assign]
    node.worker.submit(request(4))
    with pytest.raises(ZeroDivisionError):
        await node.worker.run()


async def test_what_cannot_be_queued_is_refused() -> None:
    node = Node(num_pages=2, max_queued=1)
    with pytest.raises(PromptTooLong):
        node.worker.submit(request(9))
    node.worker.submit(request(8))
    with pytest.raises(NoCapacity):
        node.worker.submit(request(8))
    assert node.worker.num_queued == 1
