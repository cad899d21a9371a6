"""What holds a path back: each limit is named exactly where it is below what the path carries."""

import dataclasses
from dataclasses import replace

import pytest

from kvtransfer.path_advice import (
    Advice,
    TcpLimits,
    advise,
    with_samples,
)
from kvtransfer.path_prediction import ProbedPath
from kvtransfer.tcp_sample import TcpSample
from pdcore.settings import TransferSettings

MIB = 2**20
GIGABIT = 120e6
FREE = TcpLimits(
    send_buffer_bytes=256 * MIB,
    receive_buffer_bytes=256 * MIB,
    congestion="bbr",
    slow_start_after_idle=True,
    retransmitted_share=0.0,
)


def path(rtt_s: float = 0.1, one: float = GIGABIT, total: float = GIGABIT) -> ProbedPath:
    return ProbedPath(rtt_s, one, max(one, total))


def findings(
    limits: TcpLimits = FREE,
    probed: ProbedPath | None = None,
    median_s: float | None = None,
    **settings: int,
) -> list[Advice]:
    probed = probed or path()
    rtt_median_s = probed.rtt_s if median_s is None else median_s
    return advise(probed, rtt_median_s, limits, TransferSettings(**settings))


def test_nothing_is_said_where_nothing_holds_back() -> None:
    assert findings() == []


def test_a_small_send_buffer_caps_one_connection() -> None:
    (advice,) = findings(replace(FREE, send_buffer_bytes=4 * MIB), path(one=28e6))
    assert advice.finding == (
        "this machine's tcp_wmem max of 4 MiB caps one connection at 0.252 Gbit/s on this 0.1 s"
        " path"
    )
    assert 'net.ipv4.tcp_wmem="4096 16384 33554432"' in advice.remedy


def test_a_small_receive_buffer_caps_it_as_well() -> None:
    (advice,) = findings(replace(FREE, receive_buffer_bytes=6 * MIB), path(one=28e6))
    assert "the decode node's tcp_rmem max of 6 MiB" in advice.finding
    assert "net.ipv4.tcp_rmem" in advice.remedy


@pytest.mark.parametrize(
    "probed",
    [path(rtt_s=0.001), path(one=1e6, total=4e6)],
    ids=["short path", "slow path"],
)
def test_a_buffer_that_the_path_cannot_fill_is_no_limit(probed: ProbedPath) -> None:
    small = replace(FREE, send_buffer_bytes=4 * MIB, receive_buffer_bytes=4 * MIB)
    assert findings(small, probed) == []


def sample(**fields: float) -> TcpSample:
    known = {field.name: 0 for field in dataclasses.fields(TcpSample)}
    return TcpSample(**{**known, **fields})


def test_what_connections_have_met_is_added_up() -> None:
    limits = with_samples(
        TcpLimits(congestion="bbr"),
        [
            sample(bytes_acked=900, bytes_retransmitted=1, busy_s=1.0, sndbuf_limited_s=0.5),
            sample(bytes_acked=100, bytes_retransmitted=1, busy_s=3.0, rwnd_limited_s=1.0),
        ],
    )
    assert limits == TcpLimits(
        congestion="bbr",
        retransmitted_share=0.002,
        send_limited_share=0.125,
        receive_limited_share=0.25,
    )


@pytest.mark.parametrize("samples", [[], [sample()]], ids=["no kernel to ask", "nothing sent"])
def test_without_samples_the_limits_are_as_they_were(samples: list[TcpSample]) -> None:
    assert with_samples(FREE, samples) == FREE


def test_unknown_limits_say_nothing() -> None:
    assert findings(TcpLimits()) == []


def test_credit_and_window_below_what_fills_the_path() -> None:
    credit, window = findings(credit_bytes=8 * MIB, window_bytes=4 * MIB)
    assert credit.finding.startswith("transfer.credit_bytes = 8388608 (8 MiB) holds all modes to")
    assert window.finding.startswith("transfer.window_bytes = 4194304 (4 MiB) holds windowed,")
    assert credit.remedy == "transfer.credit_bytes = 33554432"


def test_losses_and_who_minds_them() -> None:
    (minds,) = findings(
        replace(FREE, retransmitted_share=0.001, congestion="cubic", slow_start_after_idle=False)
    )
    assert minds.finding == "0.1 % of the bytes were sent again, and cubic slows down for each loss"
    (bears,) = findings(replace(FREE, retransmitted_share=0.001))
    assert "bbr bears it" in bears.remedy
    assert findings(replace(FREE, retransmitted_share=1e-6)) == []


def test_slow_start_after_idle_matters_on_long_paths_without_bbr() -> None:
    cubic = replace(FREE, congestion="cubic")
    (advice,) = findings(cubic)
    assert "tcp_slow_start_after_idle=0" in advice.remedy
    assert findings(cubic, path(rtt_s=0.001)) == []
    assert findings(replace(cubic, slow_start_after_idle=False)) == []


def test_round_trips_that_vary() -> None:
    (advice,) = findings(median_s=0.2)
    assert advice.finding == "round trips take 0.2 s in the median, 0.1 s at least"
    assert findings(median_s=0.11) == []
