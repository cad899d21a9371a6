"""What the serving level is held to, judged from records alone.

Each bar belongs to a scenario of ``deploy/scenarios`` and is a function from that scenario's record
to a ``BarResult``. Values of one block are compared with each other, then the median over blocks is
taken; what helps to judge the figure stands beside it. A bar that is not met is a result too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from statistics import fmean, median

from pdcore.errors import ConfigError
from pdlab.exposed import exposed_time
from pdlab.outcome import outcome_of
from pdlab.records import LinkRecord, RequestRecord, ServingRecord
from pdlab.stats import median_interval

Blocks = dict[int, float]  # repetition -> value


@dataclass(frozen=True, slots=True)
class BarResult:
    """``value`` and ``limit`` in ``unit``; ``values`` are the blocks' that ``value`` summarises."""

    name: str
    what: str
    value: float
    limit: float
    unit: str
    passed: bool
    low: float  # of the interval of ``value``, see ``median_interval``
    high: float
    values: tuple[float, ...]
    beside: tuple[str, ...] = ()

    def __str__(self) -> str:
        verdict = "met" if self.passed else "NOT met"
        sure = f"{self.low:.2f} to {self.high:.2f}, of {len(self.values)} blocks"
        figure = f"{self.value:.2f} {self.unit} ({sure})"
        head = f"{self.what}: {figure}, at most {self.limit:g}: {verdict}"
        return "\n  ".join([head, *self.beside])


def exposed_by_distance(record: ServingRecord) -> list[BarResult]:
    """What the longer link adds to the exposed time of ``auto``, in round trips."""
    near, far = _near_and_far(record)
    rtt_s = record.link[far].rtt_s - record.link[near].rtt_s
    auto = _paired(
        lambda n, f: (f - n) / rtt_s,
        _blocks(record, _exposed_s, arm="auto", link=near),
        _blocks(record, _exposed_s, arm="auto", link=far),
    )
    beside = [
        _difference_text(record, arm, name, of, near, far)
        for arm in ("auto", "sequential")
        for name, of in (("exposed time", _exposed_s), ("TTFT", _ttft_s))
    ]
    beside.append(str(outcome_of(record)))
    what = f"exposed time at {1e3 * record.link[far].rtt_s:g} ms minus at 0 ms"
    return [_judged("exposed_by_distance", what, auto, 1.3, "RTT", beside)]


def first_after_idle(record: ServingRecord) -> list[BarResult]:
    """Per link: the exposed transfer of the first request after the pause over the last one's."""
    last = max(request.index for request in record.requests)
    results = []
    for place, link in enumerate(record.link):
        first = _blocks(record, _to_commit_s, link=place, index=0)
        tenth = _blocks(record, _to_commit_s, link=place, index=last)
        ratios = _paired(lambda f, t: f / t, first, tenth)
        beside = [
            f"first {_ms(first)}, request {last + 1} {_ms(tenth)} from the last page to the commit",
            f"TTFT {_ms(_blocks(record, _ttft_s, link=place, index=0))} and"
            f" {_ms(_blocks(record, _ttft_s, link=place, index=last))}",
        ]
        what = (
            "exposed transfer of the first request after idle over that of request"
            f" {last + 1}, {_named(link)}"
        )
        results.append(
            _judged(f"first_after_idle_{link.congestion}", what, ratios, 1.2, "x", beside)
        )
    return results


def decode_under_transfers(record: ServingRecord) -> list[BarResult]:
    """Inter-token latency of the watched request (index 0) with transfers over without. Of the
    first only tokens that came while a transfer was under way count."""
    medians, means = (
        (_latencies(record, "quiet", of), _latencies(record, "inbound", of))
        for of in (median, fmean)
    )
    mean_ratio = median(_paired(lambda q, i: i / q, *means))
    beside = [
        f"quiet {_ms(medians[0])}, inbound {_ms(medians[1])}; of mean latencies {mean_ratio:.2f}x",
        f"{_inbound_bps(record) / 1e9:.2f} Gbit/s of pages arrived meanwhile"
        f" on a line of {(record.link[0].rate_bps or 0) / 1e9:g} Gbit/s",
        "all nodes, client and link share this machine's cores",
    ]
    ratios = _paired(lambda q, i: i / q, *medians)
    what = "inter-token latency with an inbound transfer at line rate over without"
    return [_judged("decode_under_transfers", what, ratios, 1.2, "x", beside)]


BARS: Mapping[str, Callable[[ServingRecord], list[BarResult]]] = {
    "serving_smollm2": exposed_by_distance,
    "first_after_idle": first_after_idle,
    "decode_under_transfers": decode_under_transfers,
}


def _judged(
    name: str, what: str, values: Sequence[float], limit: float, unit: str, beside: Iterable[str]
) -> BarResult:
    value, interval = median(values), median_interval(values)
    passed = value <= limit
    return BarResult(
        name,
        what,
        value,
        limit,
        unit,
        passed,
        interval.low,
        interval.high,
        tuple(values),
        tuple(beside),
    )


def _blocks(
    record: ServingRecord,
    of: Callable[[RequestRecord], float | None],
    *,
    arm: str | None = None,
    link: int | None = None,
    index: int | None = None,
) -> Blocks:
    """One value per block: of the request that matches, answered well and not a warm-up."""
    return {
        request.repetition: value
        for request in record.requests
        if not request.warmup
        and request.status == "ok"
        and arm in (None, request.arm)
        and link in (None, request.link)
        and index in (None, request.index)
        and (value := of(request)) is not None
    }


def _paired(of: Callable[[float, float], float], a: Blocks, b: Blocks) -> list[float]:
    """``of`` both values of each block that has both. Raises ConfigError when none has."""
    both = sorted(a.keys() & b.keys())
    if not both:
        raise ConfigError("the record has no block with both values: did every request fail?")
    return [of(a[block], b[block]) for block in both]


def _near_and_far(record: ServingRecord) -> tuple[int, int]:
    places = sorted(range(len(record.link)), key=lambda place: record.link[place].rtt_s)
    return places[0], places[-1]


def _difference_text(
    record: ServingRecord,
    arm: str,
    name: str,
    of: Callable[[RequestRecord], float | None],
    near: int,
    far: int,
) -> str:
    a, b = _blocks(record, of, arm=arm, link=near), _blocks(record, of, arm=arm, link=far)
    differences = _paired(lambda n, f: f - n, a, b)
    interval = median_interval(differences)
    return (
        f"{arm}, {name}: {_ms(a)} and {_ms(b)}, difference {1e3 * median(differences):.0f} ms"
        f" ({1e3 * interval.low:.0f} to {1e3 * interval.high:.0f}), {len(differences)} pairs"
    )


def _latencies(record: ServingRecord, arm: str, of: Callable[[Sequence[float]], float]) -> Blocks:
    """``of`` the watched request's inter-token latencies until the last transfer's end."""
    ends_s: dict[int, float] = {}
    for request in record.requests:
        if request.arm == arm and request.index > 0 and not request.warmup:
            ends_s[request.repetition] = max(ends_s.get(request.repetition, 0.0), _end_s(request))

    def until_the_end(request: RequestRecord) -> float | None:
        end_s = ends_s.get(request.repetition, inf)
        token_s = accumulate(request.itl_s, initial=request.scheduled_s + (request.ttft_s or 0.0))
        next(token_s)
        itl_s = [gap_s for gap_s, at_s in zip(request.itl_s, token_s, strict=True) if at_s <= end_s]
        return of(itl_s) if itl_s else None

    return _blocks(record, until_the_end, arm=arm, index=0)


def _inbound_bps(record: ServingRecord) -> float:
    """Bits of pages per second that arrived while the watched request decoded; median of blocks."""
    rates = []
    measured = [r for r in record.requests if r.arm == "inbound" and not r.warmup]
    answered = [r for r in measured if r.status == "ok"]
    for watched in (r for r in answered if r.index == 0):
        others = [r for r in answered if r.repetition == watched.repetition and r.index > 0]
        done = [r for r in others if _end_s(r) <= _end_s(watched)]
        if done:
            sent = sum((r.timeline or {})["transfer"]["page_bytes"] for r in done)
            rates.append(8 * sent / max(map(_end_s, done)))
    return median(rates) if rates else 0.0


def _end_s(request: RequestRecord) -> float:
    return request.scheduled_s + (request.e2e_s or 0.0)


def _exposed_s(request: RequestRecord) -> float | None:
    return request.exposed_s


def _to_commit_s(request: RequestRecord) -> float | None:
    exposed = exposed_time(request.timeline)
    return exposed.to_commit_s if exposed else None


def _ttft_s(request: RequestRecord) -> float | None:
    return request.ttft_s


def _ms(blocks: Blocks) -> str:
    return f"{1e3 * median(blocks.values()):.1f} ms" if blocks else "nothing"


def _named(link: LinkRecord) -> str:
    return f"{link.congestion}, {link.buffers} buffers, {1e3 * link.rtt_s:g} ms"
