"""How often TCP held more than it could send, by hand-made samples."""

from dataclasses import replace

from kvtransfer.tcp_backlog import TcpBacklog
from kvtransfer.tcp_sample import TcpSample

MIB = 2**20
SAMPLE = TcpSample(
    rtt_s=0.05,
    min_rtt_s=0.05,
    busy_s=1.0,
    sndbuf_limited_s=0.0,
    rwnd_limited_s=0.0,
    bytes_acked=MIB,
    bytes_retransmitted=0,
    notsent_bytes=0,
)


def waiting(*num_bytes: int) -> list[TcpSample]:
    return [replace(SAMPLE, notsent_bytes=nbytes) for nbytes in num_bytes]


def test_a_share_of_the_looks_since_then() -> None:
    backlog = TcpBacklog()
    for at, nbytes in enumerate([0, 9, 0, 5, 5, 4]):
        backlog.on_tcp(waiting(nbytes * MIB), now=float(at))
    assert backlog.share_since(1.5, 5 * MIB) == 0.5
    assert backlog.share_since(0.0, 5 * MIB) == 0.6


def test_all_connections_together() -> None:
    backlog = TcpBacklog()
    for at in range(3):
        backlog.on_tcp(waiting(2 * MIB, 3 * MIB), now=float(at))
    assert backlog.share_since(-1.0, 5 * MIB) == 1.0


def test_what_waits_for_the_receiver_does_not_count() -> None:
    backlog = TcpBacklog()
    for at in range(4):
        full = replace(SAMPLE, notsent_bytes=MIB, rwnd_limited_s=0.5 * at)
        backlog.on_tcp([full, *waiting(1)], now=float(at))
    assert backlog.share_since(0.5, MIB) == 0.0


def test_too_few_looks_tell_nothing() -> None:
    backlog = TcpBacklog()
    for at in range(2):
        backlog.on_tcp(waiting(MIB), now=float(at))
    backlog.on_tcp((), now=2.0)
    assert backlog.share_since(-1.0, 1) is None
    backlog.on_tcp(waiting(MIB, MIB), now=3.0)  # others than before: nothing to compare with
    assert backlog.share_since(-1.0, 1) is None
    backlog.on_tcp(waiting(MIB, MIB), now=4.0)
    assert backlog.share_since(-1.0, 1) == 1.0
