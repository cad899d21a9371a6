"""A standing bound that is shared in turn."""

import random

import pytest

from kvtransfer.credit import Credit
from pdcore.generation import TransferId

A, B, C = TransferId("a"), TransferId("b"), TransferId("c")


def test_takes_up_to_the_grant() -> None:
    credit = Credit(10)
    assert credit.take(A, 6)
    assert not credit.take(A, 5)
    assert credit.take(A, 4)
    assert credit.in_flight_bytes == credit.granted_bytes == 10


def test_nothing_without_a_grant() -> None:
    credit = Credit()
    assert not credit.take(A, 1)
    credit.grant(1)
    assert credit.next_in_line() == A
    assert credit.take(A, 1)
    assert credit.next_in_line() is None


def test_a_frame_beyond_the_grant_goes_alone() -> None:
    credit = Credit(10)
    assert credit.take(A, 25)
    assert not credit.take(B, 1)
    credit.give_back(25)
    assert credit.take(B, 1)
    assert not credit.take(A, 25)


def test_a_bound_of_the_senders_own() -> None:
    credit = Credit(10)
    assert credit.take(A, 4, 6)
    assert not credit.take(A, 4, 6)
    assert credit.take(A, 4, 8)
    assert not credit.take(A, 4, 100), "the grant counts, too"
    assert credit.waits(A)
    credit.give_back(8)
    assert credit.take(A, 4, 2), "a frame beyond the bound goes alone"


def test_who_waited_goes_first() -> None:
    credit = Credit(10)
    assert credit.take(A, 10)
    assert not credit.take(B, 10)
    credit.give_back(10)
    assert not credit.take(A, 1), "A would fit, but B was first"
    assert credit.next_in_line() == B
    assert credit.take(B, 10)
    assert credit.next_in_line() == A


def test_a_frame_each() -> None:
    credit = Credit(1)
    assert credit.take(A, 1)
    order = []
    for who in (A, B, C):
        credit.take(who, 1)
    for _ in range(6):
        credit.give_back(1)
        turn = credit.next_in_line()
        assert turn is not None
        assert credit.take(turn, 1)
        credit.take(turn, 1)  # wants more: to the end of the line
        order.append(turn)
    assert order == [A, B, C, A, B, C]


def test_who_leaves_the_line_blocks_nobody() -> None:
    credit = Credit(10)
    credit.take(C, 10)
    credit.take(A, 1)
    credit.take(B, 1)
    assert credit.waits(A)
    credit.leave_line(A)
    credit.leave_line(A)
    assert not credit.waits(A)
    assert credit.next_in_line() == B


def test_more_back_than_taken_is_a_defect() -> None:
    credit = Credit(10)
    credit.take(A, 3)
    with pytest.raises(AssertionError):
        credit.give_back(4)


def test_nobody_starves() -> None:
    """The longest wait, in turns, is the number of transfers."""
    chance, credit = random.Random(7), Credit(8)
    names = [TransferId(str(number)) for number in range(5)]
    taken: list[int] = []
    last_served = dict.fromkeys(names, 0)
    for turn in range(1, 2000):
        for name in names:
            credit.take(name, 9)  # never fits beside another: everybody waits
        if taken:
            credit.give_back(taken.pop())
        name = credit.next_in_line()
        assert name is not None
        size = chance.randint(1, 12)
        if credit.take(name, size):
            taken.append(size)
            assert turn - last_served[name] <= 2 * len(names)
            last_served[name] = turn
