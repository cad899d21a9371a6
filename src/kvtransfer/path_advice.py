"""Which settings hold a measured path back, each with what to do about it. No I/O.

One connection has at most its buffer in flight, so it carries at most buffer / RTT, whatever the
application does; the shares below are what Linux leaves of a buffer for data. A limit is worth a
word when it lies below, or close above, what the path was seen to carry.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvtransfer import in_words
from kvtransfer.path_prediction import ProbedPath
from kvtransfer.tcp_sample import TcpSample
from pdcore.settings import TransferSettings

SEND_SHARE = 0.75  # of tcp_wmem's maximum: the rest is bookkeeping
RECEIVE_SHARE = 0.5  # of tcp_rmem's maximum, which the window is derived from
CLOSE = 1.2  # a limit this little above the rate that was seen may be what held it
FILLS = 1.3  # windows of so many times rate x RTT fill a path
LOSS_THAT_HURTS = 1e-4
FIRST_NUMBERS = {"tcp_wmem": "4096 16384", "tcp_rmem": "4096 131072"}  # as Linux has them
LONG_RTT_S = 0.005  # below it no buffer and no slow start is felt


@dataclass(frozen=True, slots=True)
class TcpLimits:
    """``send_...``: of this machine, ``receive_...``: of the receiver. None: it could not be read.

    What the kernel says of the measurement's own connections: ``retransmitted_share`` of the bytes
    that arrived, and the shares of the time with something to send in which the send buffer, or the
    receiver's window, was full.
    """

    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None
    congestion: str | None = None
    slow_start_after_idle: bool | None = None
    retransmitted_share: float | None = None
    send_limited_share: float | None = None
    receive_limited_share: float | None = None


def with_samples(limits: TcpLimits, samples: Sequence[TcpSample]) -> TcpLimits:
    """``limits`` and what connections have met since they were made."""
    acked_bytes = sum(sample.bytes_acked for sample in samples)
    busy_s = sum(sample.busy_s for sample in samples)
    if not acked_bytes or not busy_s:
        return limits
    return replace(
        limits,
        retransmitted_share=sum(sample.bytes_retransmitted for sample in samples) / acked_bytes,
        send_limited_share=sum(sample.sndbuf_limited_s for sample in samples) / busy_s,
        receive_limited_share=sum(sample.rwnd_limited_s for sample in samples) / busy_s,
    )


@dataclass(frozen=True, slots=True)
class Advice:
    finding: str
    remedy: str


def advise(
    probed: ProbedPath, rtt_median_s: float, limits: TcpLimits, settings: TransferSettings
) -> list[Advice]:
    """What was found, the heaviest limits first; empty when nothing holds the path back."""
    found = (
        *_buffers(probed, limits),
        *_bytes_in_flight(probed, settings),
        *_loss(limits),
        *_slow_start(probed, limits),
        *_jitter(probed, rtt_median_s),
    )
    return list(found)


def _buffers(probed: ProbedPath, limits: TcpLimits) -> Iterator[Advice]:
    """The two kernels' buffers, as far as they cap a single connection."""
    if probed.rtt_s < LONG_RTT_S:
        return
    ends = (
        ("tcp_wmem", "this machine's", limits.send_buffer_bytes, SEND_SHARE),
        ("tcp_rmem", "the decode node's", limits.receive_buffer_bytes, RECEIVE_SHARE),
    )
    for name, whose, buffer_bytes, share in ends:
        if buffer_bytes is None:
            continue
        cap = share * buffer_bytes / probed.rtt_s
        if cap < CLOSE * probed.all_bytes_per_s:
            numbers = f"{FIRST_NUMBERS[name]} {_power_of_two(2 * probed.held_bytes / share)}"
            yield Advice(
                f"{whose} {name} max of {in_words.size(buffer_bytes)} caps one connection at"
                f" {in_words.exact_rate(cap)} on this {in_words.exact_time(probed.rtt_s)} path",
                "`auto` uses several connections; for one alone: sysctl -w"
                f' net.ipv4.{name}="{numbers}"',
            )


def _bytes_in_flight(probed: ProbedPath, settings: TransferSettings) -> Iterator[Advice]:
    wanted = FILLS * probed.held_bytes
    for name, nbytes, who in (
        ("credit_bytes", settings.credit_bytes, "all modes"),
        ("window_bytes", settings.window_bytes, "windowed, coalesced, pipelined and striped"),
    ):
        if nbytes < wanted:
            rate = in_words.exact_rate(nbytes / FILLS / probed.rtt_s)
            yield Advice(
                f"transfer.{name} = {nbytes} ({in_words.size(nbytes)}) holds {who} to about {rate}",
                f"transfer.{name} = {_power_of_two(2 * probed.held_bytes)}",
            )


def _loss(limits: TcpLimits) -> Iterator[Advice]:
    share = limits.retransmitted_share
    if share is None or share < LOSS_THAT_HURTS:
        return
    finding = f"{100 * share:.3g} % of the bytes were sent again"
    if limits.congestion == "bbr":
        yield Advice(finding, "bbr bears it; look for a full queue or a bad line on the way")
    else:
        yield Advice(
            f"{finding}, and {limits.congestion} slows down for each loss",
            "sysctl -w net.ipv4.tcp_congestion_control=bbr, or more connections",
        )


def _slow_start(probed: ProbedPath, limits: TcpLimits) -> Iterator[Advice]:
    """bbr keeps most of its rate over a pause."""
    if limits.slow_start_after_idle and limits.congestion != "bbr" and probed.rtt_s >= LONG_RTT_S:
        yield Advice(
            f"after a pause {limits.congestion} starts slowly again (tcp_slow_start_after_idle=1)",
            "sysctl -w net.ipv4.tcp_slow_start_after_idle=0; transfer.warmup_bytes helps as well",
        )


def _jitter(probed: ProbedPath, rtt_median_s: float) -> Iterator[Advice]:
    if rtt_median_s > 1.5 * probed.rtt_s + 1e-3:
        yield Advice(
            f"round trips take {in_words.exact_time(rtt_median_s)} in the median,"
            f" {in_words.exact_time(probed.rtt_s)} at least",
            "other traffic fills a queue on the way, or one of the machines is busy; the"
            " predictions are for the least",
        )


def _power_of_two(least: float) -> int:
    return 1 << max(20, int(least).bit_length())
