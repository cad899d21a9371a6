"""What speaks against believing a comparison, in words a reader can act on.

Mismatches are worse than doubts: two arms that did not compute or move the same are not two ways to
do one thing, whatever their speed.
"""

from collections.abc import Iterable, Iterator, Sequence

from pdlab.knobs import attributable, knobs_between
from pdlab.records import LinkRecord, Record, ServingRecord, TransferRecord
from pdlab.samples import Pairs, Samples

MAX_SHOWN = 3  # of a kind of problem, by name
LINK_TOLERANCE = 0.1  # between two measurements of one link
RTT_SLACK_S = 1e-3


def mismatches(pairs: Pairs) -> Iterator[str]:
    """Bytes that were not verified, and results that should be identical and are not."""
    for samples in dict.fromkeys(side.place for pair in pairs for side in pair if side.unverified):
        yield f"{samples}: bytes were not verified"
    for a, b in pairs:
        both = a.results.keys() & b.results.keys()
        differ = sorted((key for key in both if a.results[key] != b.results[key]), key=str)
        if differ:
            yield (
                f"{a.arm.name} and {b.arm.name} at {a.condition}: results differ in {len(differ)}"
                f" of {len(both)} ({_shown(differ)})"
            )


def pair_doubts(pairs: Pairs) -> Iterator[str]:
    for a, b in {(a.arm.name, b.arm.name): (a, b) for a, b in pairs}.values():
        knobs = knobs_between(a.arm, b.arm)
        if not attributable(knobs):
            names = f"{a.arm.name} and {b.arm.name}"
            yield f"{names} differ in {', '.join(knobs)}: the effect is of all of them together"
    yield from _side_doubts(list({s.place: s for pair in pairs for s in pair}.values()))
    moved = [str(a.condition) for a, b in pairs if not _alike(a.links, b.links)]
    if moved:
        yield f"the arms' links were not alike as measured: {_shown(moved)}"


def _side_doubts(sides: Sequence[Samples]) -> Iterator[str]:
    idle = dict.fromkeys(side.arm.name for side in sides if not side.verifies)
    if idle:
        yield f"{', '.join(idle)} checks no bytes: a yardstick, not an equal"
    void = [f"{side.place}: {side.void}" for side in sides if side.void]
    if void:
        yield f"{len(void)} void cells are left out: {_shown(void)}"
    failed = [f"{side.num_failed} of {side.place}" for side in sides if side.num_failed]
    if failed:
        yield f"failed requests are left out: {_shown(failed)}"


def run_doubts(record: Record) -> Iterator[str]:
    header = record if isinstance(record, TransferRecord) else record.header
    if header.commit == "unknown" or header.commit.endswith("-dirty"):
        yield f"commit {header.commit}: the code that was measured cannot be named"
    if isinstance(record, ServingRecord) and not record.complete:
        yield f"the run ended early, after {len(record.requests)} requests"


def two_run_doubts(a: Record, b: Record) -> Iterator[str]:
    yield "two runs, not interleaved: whatever changed between them counts as effect"
    host_a, host_b = (r.host if isinstance(r, TransferRecord) else r.header.host for r in (a, b))
    if str(host_a) != str(host_b):
        yield f"two hosts: {host_a}; {host_b}"
    if not comparable_results(a, b):
        yield "prompts of the two runs may differ: what was computed is not compared"


def comparable_results(a: Record, b: Record) -> bool:
    """Whether requests with equal prompts can be told in the two runs."""
    runs = [run for run in (a, b) if isinstance(run, ServingRecord)]
    return all(request.prompt_digest for run in runs for request in run.requests)


def _alike(a: Sequence[LinkRecord], b: Sequence[LinkRecord]) -> bool:
    return all(
        _close(x.rtt_min_s, y.rtt_min_s, RTT_SLACK_S)
        and _close(x.measured_rate_bps, y.measured_rate_bps, 0.0)
        for x in a
        for y in b
    )


def _close(x: float | None, y: float | None, slack: float) -> bool:
    return x is None or y is None or abs(x - y) <= LINK_TOLERANCE * max(x, y) + slack


def _shown(items: Iterable[str]) -> str:
    listed = list(items)
    more = len(listed) - MAX_SHOWN
    return "; ".join(listed[:MAX_SHOWN]) + (f"; and {more} more" if more > 0 else "")
