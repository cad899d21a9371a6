"""Which stripe may take the next frame, and how many there are to be."""

from dataclasses import dataclass

from kvtransfer.delivery_rate import Mark
from kvtransfer.limits import SendLimits, limits_for
from kvtransfer.messages import PageRun, Reply
from kvtransfer.send_stripes import SendStripes
from page_memory import TINY
from pdcore.settings import TransferSettings

MARK = Mark(0.0, 0)
WINDOW = 1200


@dataclass
class Told:
    num: int

    def num_stripes(self) -> int:
        return self.num


def limits(mode: str = "auto") -> SendLimits:
    return limits_for(mode, TransferSettings(), TINY)


def stripes(num: int, max_num: int = 4, mode: str = "auto") -> tuple[SendStripes, Told]:
    told = Told(num)
    made = SendStripes(limits(mode), max_num, told)
    for stripe in range(min(num, max_num)):
        made.open(stripe)
    return made, told


def send(made: SendStripes, stripe: int, nbytes: int) -> None:
    made[stripe].send(PageRun(0, 1, 0, 1), nbytes, 1, MARK)


def may(made: SendStripes, nbytes: int = 100) -> list[int]:
    return [stripe for stripe in range(4) if made.may_take(stripe, nbytes, WINDOW)]


def test_none_holds_much_more_than_its_share() -> None:
    made, _ = stripes(2)
    for _ in range(9):
        assert may(made) == [0, 1]
        send(made, 0, 100)
    assert may(made) == [1]
    made[0].acknowledge(Reply(0, 1, 100, 0))
    assert may(made) == [0, 1]


def test_one_alone_may_hold_all() -> None:
    made, _ = stripes(1)
    send(made, 0, 100 * WINDOW)
    assert may(made) == [0]
    both, _ = stripes(2)
    send(both, 0, 100 * WINDOW)
    both[1].close()
    assert may(both) == [0]


def test_two_frames_whatever_the_share() -> None:
    made, _ = stripes(2)
    send(made, 0, WINDOW)
    assert may(made, WINDOW) == [0, 1]
    send(made, 0, WINDOW)
    assert may(made, WINDOW) == [1]


def test_one_that_is_not_wanted_any_more_gets_nothing() -> None:
    made, told = stripes(3)
    told.num = 2
    assert made.num == 2
    assert may(made) == [0, 1]
    told.num = 3
    assert may(made) == [0, 1, 2]


def test_unless_no_other_is_left() -> None:
    made, told = stripes(3)
    told.num = 2
    for stripe in (0, 1):
        made[stripe].close()
    assert made.may_take(2, 100, WINDOW)


def test_nor_while_none_of_the_others_is_answered() -> None:
    """Their connections may not come back; this one is there."""
    made, told = stripes(2)
    told.num = 1
    made[1].is_heard = True
    assert may(made) == [0, 1]
    made[0].is_heard = True
    assert may(made) == [0]


def test_no_more_than_the_transfer_announced() -> None:
    made, _ = stripes(8)
    assert made.num == made.max_num == 4


def test_a_fixed_mode_uses_all_and_shares_nothing() -> None:
    made, _ = stripes(4, mode="striped")
    assert made.num == 4
    send(made, 0, 100 * WINDOW)
    assert may(made) == [0, 1, 2, 3]


def test_attempts_and_what_is_cut() -> None:
    made, _ = stripes(2)
    assert made.is_open and made.is_cut
    made[1].is_heard = True
    assert not made.is_cut
    send(made, 0, 100)
    send(made, 1, 50)
    made[0].close()
    assert made.open(0) == 1 and made.num_attempts == 2
    send(made, 0, 30)
    assert made.close() == (80, 2)
    assert not made.is_open and made.is_cut


def test_those_that_had_a_stream_are_counted_whatever_is_wanted_now() -> None:
    made, told = stripes(3)
    made[2].close()
    told.num = 1
    assert (made.num, made.num_opened) == (1, 3)
