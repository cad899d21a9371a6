"""The suites of steps that have a name: ``bars``, which judges every bar of a transfer in about
20 minutes, and ``grid``, every combination once, which judges the verdicts.

Steps on one link stand together, and of those the ones with one profile: a link comes up, and is
measured, as rarely as may be.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pdlab.link import LinkProfile, TcpSettings
from pdlab.quantities import parse_bits_per_s, parse_bytes, parse_list, parse_seconds
from pdlab.transfer.arms import NIXL, expanded
from pdlab.transfer.blocks import Blocks
from pdlab.transfer.cases import CUT, RATE_DROP, RTT_RISE, Behind, Change, Midway, NewPair
from pdlab.transfer.trial import Trial, grid

KIB, MIB = 2**10, 2**20
GBIT = 1e9
STOCK = TcpSettings(buffers="stock")
CUBIC = TcpSettings(congestion="cubic")
BBR = TcpSettings(congestion="bbr")

STOCK_LIMIT_S = 15.0
GRID_LIMIT_S = 2.0
SEQUENTIAL_LIMIT_S = 1.0

_AGAINST_RAW = expanded(("auto", "raw_tcp"))
_ONE_AT_A_TIME = ("sequential", "sequential_layer")


AnyStep = Blocks | NewPair | Behind | Midway


def bars() -> list[AnyStep]:
    return [
        *_at_1_gbit(),
        *_at_5_gbit(),
        *_in_mid_transfer(),
        *_with_loss(),
        *_with_stock_buffers(),
        _on_loopback(),
    ]


def whole_grid() -> list[AnyStep]:
    """With every rate also none, which is what a cell's bandwidth is removed by."""
    rates: list[float | None] = [*parse_list("1gbit,5gbit", parse_bits_per_s), None]
    profiles = [
        LinkProfile(rtt_s, rate)
        for rate in rates
        for rtt_s in parse_list("0,1,10,50,100,200ms", parse_seconds)
    ]
    pages = parse_list("12KiB,64KiB,360KiB,2MiB", parse_bytes)
    payloads = parse_list("32MiB,256MiB", parse_bytes)
    arms = ("sequential", "bulk", "windowed", "coalesced", "pipelined", "auto", "raw_tcp")
    template = _trial(0, 12 * KIB, 32 * MIB, expanded(arms), repetitions=1)
    template = replace(template, limit_s=GRID_LIMIT_S, warm_moves=2, fresh_ends=False)
    return [Blocks(trial) for trial in grid(profiles, pages, payloads, template)]


SUITES: Mapping[str, Callable[[], Sequence[AnyStep]]] = {"bars": bars, "grid": whole_grid}


def repeated(step: AnyStep, repetitions: int) -> AnyStep:
    """The same step, with so many repetitions."""
    return replace(step, trial=replace(step.trial, repetitions=repetitions))


def _trial(
    rtt_ms: float,
    page_bytes: int,
    payload_bytes: int,
    arms: tuple[str, ...] = _AGAINST_RAW,
    *,
    rate_bps: float | None = GBIT,
    loss: float = 0.0,
    repetitions: int = 5,
    limit_s: float = 5.0,
) -> Trial:
    profile = LinkProfile(rtt_ms / 1000, rate_bps, loss)
    return Trial(
        profile,
        page_bytes,
        payload_bytes,
        arms,
        repetitions=repetitions,
        limit_s=limit_s,
        fresh_ends="auto" in arms,
    )


def _at_1_gbit() -> list[AnyStep]:
    large, small = 256 * MIB, 32 * MIB
    with_nixl = (*_AGAINST_RAW, NIXL)
    trials = [
        _trial(0, 64 * KIB, large),
        _trial(0, 360 * KIB, small),
        _one_at_a_time(0, 360 * KIB),
        _one_at_a_time(0, 2 * MIB),
        _trial(10, 360 * KIB, large),
        _trial(10, 64 * KIB, small),
        _one_at_a_time(10, 360 * KIB),
        _trial(50, 64 * KIB, large, with_nixl),
        _trial(50, 2 * MIB, large, with_nixl),
        _trial(50, 360 * KIB, small),
        _one_at_a_time(50, 360 * KIB),
    ]
    cases: list[AnyStep] = [
        NewPair(_trial(50, 360 * KIB, 64 * MIB, ("auto",))),
        Behind(_trial(50, 64 * KIB, 257 * MIB, ("auto",)), MIB),
    ]
    distant = [
        _trial(100, 12 * KIB, large),
        _trial(100, 2 * MIB, small),
        _one_at_a_time(100, 2 * MIB),
        _trial(200, 360 * KIB, large),
    ]
    return [*map(Blocks, trials), *cases, *map(Blocks, distant)]


def _one_at_a_time(rtt_ms: float, page_bytes: int) -> Trial:
    return _trial(rtt_ms, page_bytes, 32 * MIB, _ONE_AT_A_TIME, limit_s=SEQUENTIAL_LIMIT_S)


def _at_5_gbit() -> list[AnyStep]:
    places = ((0, 360 * KIB), (10, 64 * KIB), (50, 2 * MIB), (100, 360 * KIB))
    return [Blocks(_trial(rtt, page, 256 * MIB, rate_bps=5 * GBIT)) for rtt, page in places]


def _in_mid_transfer() -> list[AnyStep]:
    trial = _trial(50, 64 * KIB, 160 * MIB, ("auto",))
    changes = (
        Change(RATE_DROP, LinkProfile(0.05, GBIT / 10)),
        Change(RTT_RISE, LinkProfile(0.2, GBIT)),
        Change(CUT, cut_s=2.0),
    )
    return [Midway(replace(trial, limit_s=STOCK_LIMIT_S), change) for change in changes]


def _with_loss() -> list[AnyStep]:
    bbr = _trial(50, 64 * KIB, 128 * MIB, loss=0.001)
    # One raw connection backs off to a tenth of the line.
    arms = ("auto", "raw_tcp_1")
    cubic = _trial(50, 64 * KIB, 64 * MIB, arms, loss=0.0001, limit_s=STOCK_LIMIT_S)
    return [Blocks(replace(bbr, tcp=BBR)), Blocks(replace(cubic, tcp=CUBIC))]


def _with_stock_buffers() -> list[AnyStep]:
    trials = [
        _trial(100, 64 * KIB, 256 * MIB, ("auto", "raw_tcp_1", NIXL), limit_s=STOCK_LIMIT_S),
        _trial(100, 2 * MIB, 256 * MIB, ("auto", NIXL), limit_s=STOCK_LIMIT_S),
    ]
    return [Blocks(replace(trial, tcp=STOCK)) for trial in trials]


def _on_loopback() -> AnyStep:
    trial = _trial(0, 64 * KIB, 256 * MIB, ("auto", "raw_grpc"), rate_bps=None)
    return Blocks(replace(trial, kind="loopback"))
