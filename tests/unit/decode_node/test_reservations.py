"""Room for a request: promised, opened, committed or given back, in every order."""

import pytest

from decode_node.reservations import (
    ADMISSIONS,
    Admission,
    Reservation,
    Room,
    reserve,
    take_for_prompt,
)
from fake_engine import FakeEngine
from pdcore.errors import NoCapacity, PromptTooLong
from pdcore.generation import GenerationRequest
from pdengine.page_pool import PagePool
from sample_request import request

NOTHING: dict[str, int] = {}
ON_DEMAND, RESERVE_MAX = ADMISSIONS["on_demand"], ADMISSIONS["reserve_max"]


def held(pool: PagePool) -> dict[str, int]:
    """The states, other than free and cached, that are not empty."""
    pool.check()
    counts = pool.counts()
    states = ("reserved", "used", "draining", "promised")
    return {state: getattr(counts, state) for state in states if getattr(counts, state)}


def reserved(engine: FakeEngine, num_prompt: int = 4, max_tokens: int = 2) -> Reservation:
    return reserve(engine.pool, engine.layout, request(num_prompt, max_tokens), ON_DEMAND)


def taken(engine: FakeEngine, asked: GenerationRequest, admission: Admission = ON_DEMAND) -> Room:
    return take_for_prompt(engine.pool, engine.prefix, engine.layout, asked, admission)


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "num_choices", "num_promised"),
    [
        (3, 1, 1, 1),  # prompt and first token in one page
        (4, 1, 1, 2),  # the first token needs a page of its own
        (3, 4, 1, 2),  # one page of growth
        (4, 4, 1, 2),  # what is to come fits in the first token's page
        (4, 5, 1, 3),
        (3, 1, 3, 3),  # each further choice copies the last page
        (3, 4, 3, 6),  # and each choice grows
    ],
)
def test_the_promise_covers_prompt_first_token_and_growth_to_expect(
    num_prompt: int, max_tokens: int, num_choices: int, num_promised: int
) -> None:
    engine = FakeEngine(16, page_tokens=4)
    asked = request(num_prompt, max_tokens, num_choices=num_choices)
    reserve(engine.pool, engine.layout, asked, ON_DEMAND)
    assert held(engine.pool) == {"promised": num_promised}


def test_opening_turns_the_promise_into_pages() -> None:
    engine = FakeEngine(8, page_tokens=4)
    reservation = reserved(engine, num_prompt=8, max_tokens=5)
    pages = reservation.open(2)
    assert len(set(pages)) == 2
    assert held(engine.pool) == {"reserved": 3, "promised": 1}


def test_it_opens_though_others_took_all_that_was_not_promised() -> None:
    engine = FakeEngine(4, page_tokens=4)
    reservation = reserved(engine, num_prompt=4, max_tokens=1)
    assert engine.pool.take(2) is not None
    assert engine.pool.take(1) is None
    assert len(reservation.open(1)) == 1
    engine.pool.check()


def test_a_commit_hands_over_all_pages_and_ends_the_promise_of_growth() -> None:
    engine = FakeEngine(8, page_tokens=4)
    reservation = reserved(engine, num_prompt=8, max_tokens=5)
    first = reservation.open(2)
    pages = reservation.commit().pages
    assert pages[:2] == list(first)
    assert held(engine.pool) == {"used": 3}
    engine.pool.release(pages)
    assert held(engine.pool) == NOTHING


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("state", ["promised", "open"])
def test_giving_back_leaves_nothing_however_often(state: str, times: int) -> None:
    engine = FakeEngine(8, page_tokens=4)
    reservation = reserved(engine, max_tokens=9)
    if state == "open":
        reservation.open(1)
    for _ in range(times):
        reservation.give_back()
    assert held(engine.pool) == NOTHING
    assert engine.pool.counts().free == 8


def test_giving_back_after_the_commit_takes_nothing_from_the_new_owner() -> None:
    engine = FakeEngine(8, page_tokens=4)
    reservation = reserved(engine)
    reservation.open(1)
    pages = reservation.commit().pages
    reservation.give_back()
    reservation.give_back()
    assert len(pages) == 2
    assert held(engine.pool) == {"used": 2}


def test_what_was_given_back_can_be_promised_again_and_is_not_taken_back() -> None:
    engine = FakeEngine(2, page_tokens=4)
    first = reserved(engine)
    first.give_back()
    second = reserved(engine)
    first.give_back()
    assert held(engine.pool) == {"promised": 2}
    second.open(1)
    first.give_back()
    assert held(engine.pool) == {"reserved": 2}


def test_it_opens_once_and_not_after_it_was_given_back() -> None:
    engine = FakeEngine(8)
    reservation = reserved(engine)
    reservation.open(1)
    with pytest.raises(AssertionError, match="opens once"):
        reservation.open(1)
    reservation.give_back()
    with pytest.raises(AssertionError, match="opens once"):
        reservation.open(1)


def test_only_what_was_received_is_committed() -> None:
    engine = FakeEngine(8)
    reservation = reserved(engine)
    with pytest.raises(AssertionError, match="received"):
        reservation.commit()
    reservation.give_back()
    with pytest.raises(AssertionError, match="received"):
        reservation.commit()


def test_no_room_is_said_with_numbers_and_holds_nothing() -> None:
    engine = FakeEngine(4, page_tokens=4)
    assert engine.pool.take(3) is not None
    with pytest.raises(NoCapacity, match="2 KV pages wanted, 1 of 4 can be had now"):
        reserved(engine, num_prompt=4)
    assert held(engine.pool) == {"used": 3}


def test_room_for_the_prompt_but_not_for_its_growth_is_no_room() -> None:
    engine = FakeEngine(3, page_tokens=4)
    assert engine.pool.take(1) is not None
    with pytest.raises(NoCapacity):
        reserved(engine, num_prompt=4, max_tokens=5)
    assert held(engine.pool) == {"used": 1}


@pytest.mark.parametrize("prompt_is_computed_here", [True, False])
def test_what_can_never_fit_is_the_clients_error(prompt_is_computed_here: bool) -> None:
    engine = FakeEngine(3, page_tokens=4)
    asked = request(8, 5)
    with pytest.raises(PromptTooLong, match=r"prompt \(8 tokens\) and max_tokens \(5\) need 4 KV"):
        if prompt_is_computed_here:
            taken(engine, asked)
        else:
            reserve(engine.pool, engine.layout, asked, ON_DEMAND)
    assert held(engine.pool) == NOTHING


def test_a_prompt_computed_here_takes_all_its_pages_at_once() -> None:
    engine = FakeEngine(3, page_tokens=4)
    room = taken(engine, request(8, 1))
    assert (len(set(room.pages)), room.num_cached) == (3, 0)
    assert held(engine.pool) == {"used": 3}


def test_a_prompt_computed_here_begins_with_what_is_cached() -> None:
    engine = FakeEngine(6, page_tokens=4)
    asked = request(8, 1)
    first = taken(engine, asked).pages
    engine.prefix.insert(asked.prompt_token_ids, "", first, 8)
    room = taken(engine, asked)
    assert room.num_cached == 4  # the last token is always computed
    assert room.pages[0] == first[0] and len(set(first + room.pages)) == 5


def test_without_room_the_cached_pages_are_let_go() -> None:
    engine = FakeEngine(4, page_tokens=4)
    asked = request(8, 1)
    pages = taken(engine, asked).pages
    engine.prefix.insert(asked.prompt_token_ids, "", pages, 8)
    engine.pool.release(pages)
    others = engine.pool.take(2)
    assert others is not None
    with pytest.raises(NoCapacity, match="3 KV pages wanted"):
        taken(engine, asked)
    assert held(engine.pool) == {"used": 2}


def test_growth_to_expect_does_not_hold_back_a_prompt_computed_here() -> None:
    """It preempts and is preempted like any runner; nobody waits for it with pages in flight."""
    engine = FakeEngine(2, page_tokens=4)
    assert len(taken(engine, request(4, 4)).pages) == 2


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "num_choices", "num_pages"),
    [(3, 1, 1, 1), (4, 1, 1, 2), (3, 4, 1, 2), (4, 5, 1, 3), (3, 4, 3, 6), (8, 1, 2, 6)],
)
@pytest.mark.parametrize("prompt_is_computed_here", [True, False])
def test_reserve_max_sets_aside_all_that_each_choice_could_ever_need(
    num_prompt: int,
    max_tokens: int,
    num_choices: int,
    num_pages: int,
    prompt_is_computed_here: bool,
) -> None:
    engine = FakeEngine(8, page_tokens=4)
    asked = request(num_prompt, max_tokens, num_choices=num_choices)
    if prompt_is_computed_here:
        room = taken(engine, asked, RESERVE_MAX)
    else:
        reservation = reserve(engine.pool, engine.layout, asked, RESERVE_MAX)
        assert held(engine.pool) == {"promised": num_pages}
        reservation.open(engine.layout.num_pages(num_prompt))
        room = reservation.commit()
        reservation.give_back()
    assert sum(held(engine.pool).values()) == num_pages
    assert room.growth is not None
    engine.pool.withdraw(room.growth)
    engine.pool.release(room.pages)
    assert held(engine.pool) == NOTHING


def test_on_demand_promises_nothing_to_who_runs() -> None:
    engine = FakeEngine(8, page_tokens=4)
    assert taken(engine, request(3, 9)).growth is None
    reservation = reserved(engine, num_prompt=3, max_tokens=9)
    reservation.open(1)
    assert reservation.commit().growth is None


@pytest.mark.parametrize("prompt_is_computed_here", [True, False])
def test_reserve_max_refuses_what_it_could_never_set_aside(prompt_is_computed_here: bool) -> None:
    """On demand three choices share the prompt and fit."""
    engine = FakeEngine(8, page_tokens=4)
    asked = request(9, 3, num_choices=3)
    with pytest.raises(PromptTooLong, match="need 9 KV pages; the decode node has 8"):
        if prompt_is_computed_here:
            taken(engine, asked, RESERVE_MAX)
        else:
            reserve(engine.pool, engine.layout, asked, RESERVE_MAX)
    assert held(engine.pool) == NOTHING
    assert taken(engine, asked).pages


def test_reserve_max_without_room_holds_nothing() -> None:
    engine = FakeEngine(4, page_tokens=4)
    assert engine.pool.take(1) is not None
    with pytest.raises(NoCapacity, match="4 KV pages wanted, 3 of 4 can be had now"):
        taken(engine, request(4, 12), RESERVE_MAX)
    assert held(engine.pool) == {"used": 1}
