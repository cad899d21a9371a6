"""What a pair says when it is not usable."""

import pytest

from kvtransfer.changes import Changes
from kvtransfer.data_channels import Dialer
from kvtransfer.pair import Pair
from page_memory import RECEIVER, SENDER, TINY
from pdcore.errors import PeerUnavailable
from pdcore.generation import TransferId
from pdcore.settings import TlsSettings, TransferSettings


def make() -> Pair:
    dialer = Dialer("10.0.0.2:7001", TlsSettings())
    return Pair(dialer, SENDER, TINY, TransferSettings(), Changes())


async def test_a_node_that_was_never_heard_is_named_by_its_address() -> None:
    with pytest.raises(PeerUnavailable, match=r"10\.0\.0\.2:7001 is not connected yet"):
        await make().attached(RECEIVER.epoch, 0.0)


async def test_every_transfer_gets_an_error_of_its_own() -> None:
    """One that is raised again and again collects the frames of all who got it."""
    pair, errors = make(), []
    for _ in range(2):
        with pytest.raises(PeerUnavailable) as caught:
            await pair.attached(RECEIVER.epoch, 0.0)
        errors.append(caught.value)
    pair.forget()
    await pair.run()
    for _ in range(2):
        with pytest.raises(PeerUnavailable, match="is no longer known") as caught:
            pair.open_push(TransferId("t"))
        errors.append(caught.value)
    assert len({id(error) for error in errors}) == 4


async def test_who_leaves_the_line_for_credit_wakes_who_is_next() -> None:
    """Nobody else would: no credit has come back."""
    pair, first, second = make(), TransferId("first"), TransferId("second")
    changes = {first: Changes(), second: Changes()}
    for transfer_id, its_changes in changes.items():
        pair.enroll(transfer_id, its_changes)
        assert not pair.credit.take(transfer_id, 1)  # nothing is granted yet
    woken = changes[second].next()
    pair.pass_turn(first)
    pair.pass_turn(second)
    woken_again = changes[first].next()
    assert not woken.is_set()
    pair.credit.leave_line(first)
    pair.pass_turn(first)
    assert woken.is_set() and not woken_again.is_set()
