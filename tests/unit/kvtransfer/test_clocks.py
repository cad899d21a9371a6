"""Which clock speaks first, and what it says."""

import pytest

from kvtransfer.clocks import ReceiveClocks, SendClocks
from pdcore.errors import PeerUnavailable, TransferStalled
from pdcore.settings import TransferSettings

SETTINGS = TransferSettings(resume_s=2.0, stall_s=10.0)


def test_a_sender_without_a_stream_gives_up_after_resume_s() -> None:
    clocks = SendClocks(SETTINGS)
    clocks.run(is_cut=True, could_move=True, now=1.0)
    assert clocks.deadline() == 3.0
    clocks.check(5, 2.999)
    with pytest.raises(PeerUnavailable, match="no connection to the decode node for 2 s"):
        clocks.check(5, 3.0)


def test_a_sender_whose_frames_are_acknowledged_does_not_stall() -> None:
    clocks = SendClocks(SETTINGS)
    clocks.run(is_cut=False, could_move=True, now=1.0)
    clocks.moved(8.0)
    clocks.run(is_cut=False, could_move=True, now=9.0)
    assert clocks.deadline() == 18.0
    with pytest.raises(TransferStalled, match=r"acknowledged for 10 s \(5 bytes in flight\)"):
        clocks.check(5, 18.0)


def test_a_sender_with_nothing_to_do_waits_without_limit() -> None:
    clocks = SendClocks(SETTINGS)
    clocks.run(is_cut=True, could_move=True, now=1.0)
    clocks.run(is_cut=False, could_move=False, now=2.0)
    assert clocks.deadline() is None
    clocks.check(0, 1e9)


def test_a_receiver_counts_from_the_last_stream_and_from_the_last_page() -> None:
    clocks = ReceiveClocks(SETTINGS)
    clocks.moved(0.5)
    assert clocks.deadline() is None and clocks.problem(3, 1e9) is None
    clocks.run_stall(1.0)
    clocks.moved(4.0)
    assert clocks.deadline() == 14.0
    assert isinstance(clocks.problem(3, 14.0), TransferStalled)
    clocks.run_resume(True, 5.0)
    assert clocks.deadline() == 7.0
    assert isinstance(clocks.problem(3, 14.0), PeerUnavailable)
    clocks.run_resume(False, 6.0)
    assert clocks.problem(3, 13.0) is None
