"""What a step computes, and who makes room."""

import pytest

from decode_node.group import Group, Member
from decode_node.planner import StepPlan, StepPlanner
from fake_engine import FakeEngine
from pdcore.settings import EngineSettings
from pdengine.sequence import Sequence
from sample_request import request


def planner(engine: FakeEngine, step_tokens: int = 64, max_sequences: int = 64) -> StepPlanner:
    settings = EngineSettings(step_tokens=step_tokens, max_sequences=max_sequences)
    return StepPlanner(engine.pool, engine.prefix, engine.layout, settings)


def member(
    engine: FakeEngine, num_tokens: int, num_computed: int, order: int, num_pages: int | None = None
) -> Member:
    """A prompt of ``num_tokens`` tokens, in ``num_pages`` pages (default: just enough)."""
    wanted = engine.layout.num_pages(num_tokens) if num_pages is None else num_pages
    pages = engine.pool.take(wanted)
    assert pages is not None
    group = Group(request(num_tokens))
    return Member(group, Sequence(group.request, 0, pages, num_computed), (0,), order)


def decoding(
    engine: FakeEngine, num_tokens: int, order: int, num_pages: int | None = None
) -> Member:
    return member(engine, num_tokens, num_tokens - 1, order, num_pages)


def sibling(engine: FakeEngine, of: Member, choice: int) -> Member:
    """Another choice, sharing all pages."""
    assert engine.pool.share(of.sequence.pages)
    fork = of.sequence.fork(choice, of.sequence.pages)
    return Member(of.group, fork, (choice,), of.order)


def shape(plan: StepPlan) -> list[tuple[int, int]]:
    """(order of the member, tokens) of each slice."""
    return [
        (member.order, piece.num_tokens)
        for member, piece in zip(plan.members, plan.slices, strict=True)
    ]


def test_nobody_runs() -> None:
    plan = planner(FakeEngine(4)).plan([])
    assert not plan.slices and not plan.members and not plan.copies and not plan.preempted


def test_decoding_members_come_first_and_prompts_get_the_rest() -> None:
    engine = FakeEngine(16)
    prompt = member(engine, 12, 0, order=0)
    runners = [decoding(engine, 3, order=1), decoding(engine, 3, order=2)]
    plan = planner(engine, step_tokens=8).plan([prompt, *runners])
    assert shape(plan) == [(1, 1), (2, 1), (0, 6)]


def test_a_prompt_goes_in_chunks_and_the_next_one_takes_what_is_left() -> None:
    engine = FakeEngine(16)
    prompts = [member(engine, 10, 4, order=0), member(engine, 10, 0, order=1)]
    assert shape(planner(engine, step_tokens=8).plan(prompts)) == [(0, 6), (1, 2)]


def test_a_full_budget_leaves_later_prompts_out() -> None:
    engine = FakeEngine(16)
    prompts = [member(engine, 8, 0, order=order) for order in range(2)]
    assert shape(planner(engine, step_tokens=8).plan(prompts)) == [(0, 8)]


def test_the_budget_also_bounds_decoding_members() -> None:
    engine = FakeEngine(16)
    runners = [decoding(engine, 2, order) for order in range(3)]
    assert shape(planner(engine, step_tokens=2).plan(runners)) == [(0, 1), (1, 1)]


def test_max_sequences_counts_both_kinds() -> None:
    engine = FakeEngine(16)
    running = [member(engine, 8, 0, 0), decoding(engine, 2, 1), member(engine, 8, 0, 2)]
    assert shape(planner(engine, max_sequences=2).plan(running)) == [(1, 1), (0, 8)]


def test_a_place_in_the_last_page_needs_no_new_one() -> None:
    engine = FakeEngine(2, page_tokens=4)
    runner = decoding(engine, 4, order=0)
    plan = planner(engine).plan([runner])
    assert shape(plan) == [(0, 1)]
    assert len(runner.sequence.pages) == 1


def test_a_full_page_table_grows_by_one() -> None:
    engine = FakeEngine(3, page_tokens=4)
    runner = decoding(engine, 5, order=0, num_pages=1)
    planner(engine).plan([runner])
    assert len(runner.sequence.pages) == 2
    assert engine.pool.counts().used == 2


def test_growth_never_takes_promised_room() -> None:
    engine = FakeEngine(2, page_tokens=4)
    runner = decoding(engine, 5, order=0, num_pages=1)
    assert engine.pool.promise(1) is not None
    plan = planner(engine).plan([runner])
    assert plan.preempted == [runner] and not plan.slices
    assert engine.pool.counts().used == 0


def test_a_shared_last_page_is_copied_by_all_but_the_last_owner() -> None:
    engine = FakeEngine(8, page_tokens=4)
    first = decoding(engine, 2, order=0)
    members = [first, sibling(engine, first, 1), sibling(engine, first, 2)]
    (shared,) = first.sequence.pages
    plan = planner(engine).plan(members)
    assert [source for source, _ in plan.copies] == [shared, shared]
    assert [target for _, target in plan.copies] == [m.sequence.pages[0] for m in members[:2]]
    assert members[2].sequence.pages == [shared]
    assert len({m.sequence.pages[0] for m in members}) == 3
    assert all(engine.pool.num_references(m.sequence.pages[0]) == 1 for m in members)


def test_full_pages_stay_shared() -> None:
    engine = FakeEngine(8, page_tokens=2)
    first = decoding(engine, 5, order=0)
    second = sibling(engine, first, 1)
    planner(engine).plan([first, second])
    assert first.sequence.pages[:2] == second.sequence.pages[:2]
    assert first.sequence.pages[2] != second.sequence.pages[2]
    assert engine.pool.counts().shared == 2


def test_a_copied_page_is_not_free_before_the_step_has_copied_it() -> None:
    """Its other owner may go while the step is in flight; then it must not be written to."""
    engine = FakeEngine(8, page_tokens=4)
    first = decoding(engine, 2, order=0)
    second = sibling(engine, first, 1)
    plan = planner(engine, max_sequences=1).plan([first, second])
    ((source, _),) = plan.copies
    engine.pool.release(second.sequence.give_up_pages())
    assert engine.pool.counts().draining == 1
    engine.pool.drained([source])
    assert engine.pool.counts().used == 1


def test_the_youngest_makes_room() -> None:
    engine = FakeEngine(4, page_tokens=2)
    running = [decoding(engine, 3, order=0, num_pages=1)]
    running += [decoding(engine, 2, order=order) for order in (1, 2, 3)]
    plan = planner(engine).plan(running)
    assert plan.preempted == [running[3]]
    assert shape(plan) == [(0, 1), (1, 1), (2, 1)]
    assert running[3].sequence.pages == [] and running[3].sequence.num_computed == 0


def test_the_youngest_makes_room_even_when_it_is_a_prompt() -> None:
    engine = FakeEngine(3, page_tokens=2)
    running = [decoding(engine, 3, order=0, num_pages=1), member(engine, 4, 0, order=1)]
    plan = planner(engine).plan(running)
    assert plan.preempted == [running[1]]
    assert shape(plan) == [(0, 1)]


def test_as_many_as_it_takes_make_room_the_youngest_first() -> None:
    engine = FakeEngine(3, page_tokens=2)
    first = decoding(engine, 5, order=0, num_pages=2)
    prompt = member(engine, 2, 0, order=1)
    forks = [prompt, sibling(engine, prompt, 1)]  # the page comes back with the second one
    plan = planner(engine).plan([first, *forks])
    assert plan.preempted == [forks[1], forks[0]]
    assert shape(plan) == [(0, 1)]


def test_the_youngest_runner_gives_way_itself() -> None:
    engine = FakeEngine(3, page_tokens=2)
    running = [member(engine, 4, 0, order=0), decoding(engine, 3, order=1, num_pages=1)]
    plan = planner(engine).plan(running)
    assert plan.preempted == [running[1]]
    assert shape(plan) == [(0, 4)]


def test_a_page_that_a_victim_shared_needs_no_copy() -> None:
    """The oldest advances with what it has: nothing else could ever bring it forward."""
    engine = FakeEngine(1, page_tokens=4)
    first = decoding(engine, 2, order=0)
    second = sibling(engine, first, 1)
    plan = planner(engine).plan([first, second])
    assert plan.preempted == [second] and not plan.copies
    assert shape(plan) == [(0, 1)]


def test_a_preempted_member_leaves_its_full_pages_to_the_prefix_cache() -> None:
    engine = FakeEngine(3, page_tokens=2)
    running = [decoding(engine, 3, order=0, num_pages=1), decoding(engine, 4, order=1)]
    planner(engine).plan(running)
    assert engine.pool.counts().cached == 1


@pytest.mark.parametrize("num_tokens", [1, 4, 5])
def test_planning_keeps_the_pool_consistent(num_tokens: int) -> None:
    engine = FakeEngine(6, page_tokens=2)
    running = [decoding(engine, num_tokens, order) for order in range(2)]
    for _ in range(4):
        plan = planner(engine).plan(running)
        engine.pool.check()
        running = [member for member in running if member not in plan.preempted]
