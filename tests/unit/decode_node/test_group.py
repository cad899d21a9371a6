"""How a request's tokens leave: in order, until every choice has ended, or with an error."""

import asyncio

import pytest

from decode_node.group import Deltas, Group, Member
from pdcore.errors import InternalError
from pdcore.generation import FinishReason, TokenDelta
from pdengine.sequence import Sequence
from sample_request import request

LAST = FinishReason.LENGTH


async def all_of(group: Group) -> list[Deltas]:
    return [deltas async for deltas in group.deltas()]


async def test_what_was_emitted_comes_in_order() -> None:
    group = Group(request())
    emitted = [(TokenDelta(0, (1,)),), (TokenDelta(0, (2,)),), (TokenDelta(0, (3,), LAST),)]
    for deltas in emitted:
        group.emit(deltas)
    assert await all_of(group) == emitted


async def test_it_ends_when_every_choice_has() -> None:
    group = Group(request(num_choices=2))
    group.emit((TokenDelta(0, (1,), LAST), TokenDelta(1, (2,))))
    assert not group.is_finished and group.has_finished(0) and not group.has_finished(1)
    group.emit((TokenDelta(1, (), FinishReason.STOP),))
    assert group.is_finished
    assert len(await all_of(group)) == 2


async def test_a_reader_waits_for_the_next_one() -> None:
    group = Group(request())
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(all_of(group))
        await asyncio.sleep(0)
        assert not reader.done()
        group.emit((TokenDelta(0, (1,), LAST),))
    assert reader.result() == [(TokenDelta(0, (1,), LAST),)]


async def test_a_failure_comes_after_what_was_emitted_before() -> None:
    group = Group(request())
    group.emit((TokenDelta(0, (1,)),))
    group.fail(InternalError("the step failed"))
    deltas = group.deltas()
    assert await anext(deltas) == (TokenDelta(0, (1,)),)
    with pytest.raises(InternalError, match="the step failed"):
        await anext(deltas)


async def test_first_token_and_first_step_are_marked_once() -> None:
    group = Group(request())
    assert group.first_token_s is None and group.first_step_s is None
    group.emit((TokenDelta(0, (1,)),))
    first_token_s = group.first_token_s
    assert first_token_s is not None and group.first_step_s is None
    group.emit((TokenDelta(0, (2,)),))
    first_step_s = group.first_step_s
    assert first_step_s is not None and first_step_s >= first_token_s
    group.emit((TokenDelta(0, (3,)),))
    assert (group.first_token_s, group.first_step_s) == (first_token_s, first_step_s)


def test_a_member_says_what_the_client_gets_of_a_token() -> None:
    group = Group(request(2, max_tokens=2, stop_token_ids=(9,)))
    member = Member(group, Sequence(group.request, 1, [0]), (1,), order=0)
    assert member.take(1, 5) == TokenDelta(1, (5,))
    assert member.take(1, 6) == TokenDelta(1, (6,), FinishReason.LENGTH)
    assert group.num_generated == 2


def test_a_stop_token_is_counted_and_not_shown() -> None:
    group = Group(request(2, stop_token_ids=(9,)))
    member = Member(group, Sequence(group.request, 0, [0]), (0,), order=0)
    assert member.take(0, 9) == TokenDelta(0, (), FinishReason.STOP)
    assert group.num_generated == 1


def test_a_member_decodes_when_one_token_is_left_to_compute() -> None:
    group = Group(request(3))
    assert not Member(group, Sequence(group.request, 0, [0], 1), (0,), 0).is_decoding
    assert Member(group, Sequence(group.request, 0, [0], 2), (0,), 0).is_decoding
