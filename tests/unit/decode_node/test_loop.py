"""The loop, step by step: who joins, leaves and fails when, and what becomes of their pages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from decode_node.group import Deltas, Group
from decode_node.loop import DecodeLoop
from decode_node.reservations import ADMISSIONS, Reservation, reserve, take_for_prompt
from fake_engine import FakeEngine, alone, first_tokens, kv_of
from gated_compute import GatedCompute, settle
from pdcore.errors import InternalError
from pdcore.generation import FinishReason, GenerationRequest, TokenDelta
from pdcore.metrics import NodeMetrics
from pdcore.settings import EngineSettings
from sample_request import request


class Node:
    """A loop with what it needs, and the clients of its groups."""

    def __init__(self, num_pages: int = 16, page_tokens: int = 4, **engine: int) -> None:
        self.engine = FakeEngine(num_pages, page_tokens)
        self.compute = GatedCompute()
        self.metrics = NodeMetrics()
        self.loop = DecodeLoop(self.engine, self.compute, EngineSettings(**engine), self.metrics)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.loop.run())
            yield
            task.cancel()

    async def steps(self, num: int = 1) -> None:
        for _ in range(num):
            self.compute.finish()
            await settle()

    async def to_the_end(self) -> None:
        while self.compute.is_busy:
            await self.steps()

    def prompt(self, asked: GenerationRequest, admission: str = "on_demand") -> Group:
        engine, group = self.engine, Group(asked)
        room = take_for_prompt(
            engine.pool, engine.prefix, engine.layout, asked, ADMISSIONS[admission]
        )
        self.loop.join_prompt(group, room)
        return group

    def received(self, asked: GenerationRequest, admission: str = "on_demand") -> Group:
        engine, group = self.engine, Group(asked)
        reservation = reserve(engine.pool, engine.layout, asked, ADMISSIONS[admission])
        pages = reservation.open(engine.layout.num_pages(len(asked.prompt_token_ids)))
        engine.kv.store(pages, 0, kv_of(asked.prompt_token_ids))
        self.loop.join_received(group, reservation.commit(), first_tokens(asked))
        return group

    def arriving(self, asked: GenerationRequest) -> Reservation:
        return reserve(self.engine.pool, self.engine.layout, asked, ADMISSIONS["on_demand"])

    def in_use(self) -> int:
        self.engine.pool.check()
        counts = self.engine.pool.counts()
        return counts.used + counts.reserved + counts.draining + counts.promised


async def output(group: Group, choice: int = 0) -> tuple[list[int], FinishReason | None]:
    """What a finished group said of one choice."""
    tokens, reason = [], None
    async for deltas in group.deltas():
        for delta in deltas:
            if delta.choice == choice:
                tokens += delta.token_ids
                reason = delta.finish_reason
    return tokens, reason


async def pending(group: Group) -> list[Deltas]:
    """What a group has emitted so far."""
    got: list[Deltas] = []

    async def follow() -> None:
        async for deltas in group.deltas():
            got.append(deltas)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(follow())
        await settle()
        task.cancel()
    return got


@pytest.mark.parametrize("num_prompt", [1, 3, 4, 5])
@pytest.mark.parametrize("max_tokens", [1, 2, 6])
async def test_a_prompt_gives_the_tokens_that_it_gives_alone(
    num_prompt: int, max_tokens: int
) -> None:
    node = Node()
    asked = request(num_prompt, max_tokens)
    async with node.running():
        group = node.prompt(asked)
        await settle()
        await node.to_the_end()
    assert await output(group) == alone(asked, 0)
    assert group.is_finished
    assert node.in_use() == 0


async def test_a_received_request_has_its_first_token_before_any_step() -> None:
    node = Node()
    asked = request(4, 3)
    group = node.received(asked)
    assert await pending(group) == [(TokenDelta(0, first_tokens(asked)),)]
    assert not node.engine.steps


async def test_a_received_request_of_one_token_never_runs() -> None:
    node = Node()
    asked = request(4, 1, num_choices=3)
    async with node.running():
        group = node.received(asked)
        await settle()
        assert not node.compute.is_busy
    for choice in range(3):
        assert (await output(group, choice))[0] == [first_tokens(asked)[choice]]
        group = node.received(asked)
    assert node.in_use() == 0


async def test_a_stop_token_first_gives_no_token_but_counts() -> None:
    node = Node()
    asked = request(4, 5)
    asked = request(4, 5, stop_token_ids=first_tokens(asked))
    group = node.received(asked)
    assert await output(group) == ([], FinishReason.STOP)
    assert group.num_generated == 1
    assert node.in_use() == 0


async def test_choices_share_the_prompt_and_part_at_the_first_write() -> None:
    node = Node()
    asked = request(6, 4, num_choices=3)
    async with node.running():
        node.received(asked)
        assert node.engine.pool.counts().shared == 2
        await settle()
        assert node.engine.pool.counts().shared == 1
        assert node.engine.pool.counts().used == 4
        await node.to_the_end()
    assert node.in_use() == 0


async def test_a_newcomer_joins_the_next_step() -> None:
    node = Node()
    async with node.running():
        node.received(request(3, 9, request_id="first"))
        await settle()
        node.received(request(3, 9, request_id="second"))
        await node.steps(2)
        sizes = [len(slices) for slices in node.engine.steps]
        assert sizes == [1, 2]
        await node.to_the_end()


async def test_pages_of_a_member_in_a_step_drain_until_the_step_ends() -> None:
    node = Node()
    async with node.running():
        group = node.received(request(3, 9))
        await settle()
        node.loop.leave(group)
        counts = node.engine.pool.counts()
        assert (counts.used, counts.draining) == (0, 1)
        await node.steps()
        assert node.in_use() == 0
        assert not node.compute.is_busy


async def test_leaving_twice_is_leaving_once() -> None:
    node = Node()
    async with node.running():
        group = node.prompt(request(6, 9, num_choices=2))
        await settle()
        node.loop.leave(group)
        node.loop.leave(group)
        await node.steps()
        node.loop.leave(group)
    assert node.in_use() == 0


async def test_a_transfer_cannot_write_to_a_page_that_a_step_still_copies() -> None:
    """Its other owner, not in this step, leaves; its page goes to a transfer at once."""
    node = Node(num_pages=5, max_sequences=1)
    asked = request(2, 3, num_choices=2)
    async with node.running():
        group = node.received(asked)
        await settle()
        node.loop.stop_choice(group, 1)
        arriving = node.arriving(request(8, 1))
        node.engine.kv.spoil(arriving.open(2))
        await node.to_the_end()
        arriving.give_back()
    assert await output(group) == alone(asked, 0)


async def test_a_stopped_choice_ends_and_the_others_go_on() -> None:
    node = Node()
    asked = request(3, 5, num_choices=2)
    async with node.running():
        group = node.received(asked)
        await settle()
        node.loop.stop_choice(group, 0)
        node.loop.stop_choice(group, 0)
        await node.to_the_end()
    assert await output(group, 1) == alone(asked, 1)
    assert node.in_use() == 0


async def test_stopping_what_has_finished_changes_nothing() -> None:
    node = Node()
    group = node.received(request(3, 1))
    node.loop.stop_choice(group, 0)
    assert len(await pending(group)) == 1


async def test_a_failing_step_fails_its_groups_only() -> None:
    node = Node(num_pages=4, max_sequences=1)
    async with node.running():
        failing = node.received(request(3, 5, request_id="a"))
        waiting = node.received(request(3, 5, request_id="b"))
        await settle()
        node.engine.fail_next = InternalError("no token can be sampled")
        await node.steps()
        with pytest.raises(InternalError, match="no token can be sampled"):
            await output(failing)
        await node.to_the_end()
        assert await output(waiting) == alone(request(3, 5), 0)
    assert node.in_use() == 0


async def test_a_row_without_a_token_fails_its_own_request_only() -> None:
    node = Node()
    async with node.running():
        good = node.received(request(3, 5, request_id="good"))
        bad = node.received(request(9, 5, request_id="bad", num_choices=2))
        node.engine.broken.add(bad.request.request_id)
        await settle()
        await node.steps()
        with pytest.raises(InternalError, match="no token can be sampled"):
            await output(bad)
        await node.to_the_end()
        assert await output(good) == alone(request(3, 5), 0)
    assert node.in_use() == 0


async def test_pages_of_a_request_that_failed_for_a_defect_are_not_found_again() -> None:
    """They may be what it failed of: KV that is no number would fail everyone who shares it."""
    node = Node()
    asked = request(9, 5, request_id="bad")
    async with node.running():
        bad = node.received(asked)
        node.engine.broken.add(bad.request.request_id)
        await settle()
        await node.steps()
    assert node.in_use() == 0
    assert node.engine.prefix.match(asked.prompt_token_ids, asked.cache_salt) == []
    assert node.engine.pool.counts().free == 16


async def test_a_defect_ends_the_loop() -> None:
    """What is not an error of ours is not survived: the process ends, and says why."""
    node = Node()

    async def defective(*_: object) -> None:
        raise ZeroDivisionError

    node.compute.run = defective  # type: ignore[method-assign]
    node.received(request(3, 5))
    with pytest.raises(ZeroDivisionError):
        await node.loop.run()


async def test_a_preempted_member_comes_back_and_says_nothing_twice() -> None:
    node = Node(num_pages=4, page_tokens=2)
    first, second = request(3, 5, request_id="a"), request(3, 4, request_id="b", seed=1)
    async with node.running():
        groups = [node.prompt(first), node.prompt(second)]
        await settle()
        preempted = 0
        while node.compute.is_busy:
            await node.steps()
            preempted = max(preempted, node.loop.num_preempted)
    assert preempted == 1
    assert await output(groups[0]) == alone(first, 0)
    assert await output(groups[1]) == alone(second, 0)
    assert node.in_use() == 0


async def test_a_preempted_member_takes_what_the_prefix_cache_kept() -> None:
    """Of its five tokens four lie in full pages, which nobody needed meanwhile."""
    node = Node(num_pages=6, page_tokens=2)
    asked = request(3, 5)
    held = node.engine.pool.take(4)
    assert held is not None
    async with node.running():
        group = node.prompt(asked)
        await settle()
        await node.to_the_end()
        assert node.loop.num_preempted == 1
        assert node.engine.num_computed_tokens == 4
        node.engine.pool.release(held)
        node.loop.wake()
        await settle()
        await node.to_the_end()
    assert node.engine.num_computed_tokens == 3 + 4
    assert await output(group) == alone(asked, 0)


async def test_a_preempted_member_that_comes_back_is_still_the_older_one() -> None:
    node = Node(num_pages=8, page_tokens=2)
    engine = node.engine
    arriving = node.arriving(request(1, 8))
    held = engine.pool.take(4)
    async with node.running():
        old, young = node.prompt(request(3, 6)), Group(request(1, 8))
        await settle()
        await node.to_the_end()
        assert held and node.loop.num_preempted == 1
        engine.kv.store(arriving.open(1), 0, kv_of(young.request.prompt_token_ids))
        node.loop.join_received(young, arriving.commit(), first_tokens(young.request))
        await settle()
        (plan,) = node.compute.args
        assert [member.group for member in plan.members] == [old, young]
        node.loop.leave(old)
        node.loop.leave(young)
        await node.steps()


async def test_who_waits_behind_a_preempted_one_that_leaves_is_woken() -> None:
    """Two wait for pages; the first would need more than there are, and leaves."""
    node = Node(num_pages=6, page_tokens=2)
    held = node.engine.pool.take(2)
    asked = request((0,), 4, request_id="small")
    async with node.running():
        big = node.prompt(request((1,) * 5, 7, request_id="big"))
        small = node.prompt(asked)
        await settle()
        await node.to_the_end()
        assert held and node.loop.num_preempted == 2
        node.loop.leave(big)
        await settle()
        assert node.compute.is_busy
        await node.to_the_end()
        assert await output(small) == alone(asked, 0)


async def test_a_step_that_fails_after_its_only_member_left() -> None:
    node = Node()
    async with node.running():
        group = node.received(request(3, 5))
        await settle()
        node.loop.leave(group)
        node.engine.fail_next = InternalError("no token can be sampled")
        await node.steps()
        assert not node.compute.is_busy
    assert node.in_use() == 0


@pytest.mark.parametrize("num_choices", [1, 3])
@pytest.mark.parametrize("how", ["prompt", "received"])
async def test_who_has_reserved_all_draws_from_it_and_gives_the_rest_back(
    how: str, num_choices: int
) -> None:
    node = Node(num_pages=12, page_tokens=4)
    asked = request(5, 6, num_choices=num_choices)
    total = num_choices * 3
    async with node.running():
        group = getattr(node, how)(asked, "reserve_max")
        assert node.in_use() == total
        others = node.engine.pool.take(12 - total)
        assert others is not None
        await settle()
        while node.compute.is_busy and not group.is_finished:
            assert node.in_use() == 12
            await node.steps()
        assert node.in_use() == 12 - total
    assert await output(group, num_choices - 1) == alone(asked, num_choices - 1)
    assert node.metrics.registry.get_sample_value("pdspan_preemptions_total") == 0


async def test_a_request_that_leaves_early_gives_back_what_it_had_reserved() -> None:
    node = Node(num_pages=12, page_tokens=4)
    async with node.running():
        group = node.prompt(request(5, 30), "reserve_max")
        await settle()
        assert node.in_use() == 9
        node.loop.leave(group)
        await node.steps()
        assert node.in_use() == 0


async def test_use_counts_shared_pages_once_and_promises_as_set_aside() -> None:
    node = Node(num_pages=12, page_tokens=4)
    async with node.running():
        node.received(request(8, 4, num_choices=2))
        use = node.loop.kv_use()
        assert (use.live_tokens, use.reserved_tokens) == (8, 12)
        node.received(request(3, 9), "reserve_max")
        use = node.loop.kv_use()
        assert (use.live_tokens, use.reserved_tokens) == (8 + 3, 12 + 12)
        await settle()
        await node.to_the_end()
        use = node.loop.kv_use()
        assert (use.live_tokens, use.reserved_tokens) == (0, 0)
