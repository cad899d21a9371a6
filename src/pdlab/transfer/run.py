"""``run_trials`` is a whole experiment: links come up, are measured, trials run; a record results.

Trials that differ only in the link's profile share a link and its two ends: the profile is changed
in place, and since every trial opens connections of its own and warms them, none sees another's.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from itertools import groupby

from pdlab.host import describe_commit, describe_host
from pdlab.link import Link, open_link
from pdlab.link_record import link_record
from pdlab.records import Cell, LinkRecord, TransferRecord
from pdlab.transfer.arms import NIXL
from pdlab.transfer.cells import cells_of
from pdlab.transfer.ends import Ends, Program, open_ends
from pdlab.transfer.measure import measure
from pdlab.transfer.sizing import line_bytes_per_s
from pdlab.transfer.trial import Trial, pool_bytes

Report = Callable[[str, float], None]

OUR_ENDS = Program(
    sender=(sys.executable, "-m", "pdlab.transfer.sender_end"),
    receiver=(sys.executable, "-m", "pdlab.transfer.receiver_end"),
)


async def run_trials(
    scenario: str, kind: str, trials: Sequence[Trial], report: Report, *, nixl: Program | None
) -> TransferRecord:
    """``kind``: of link. ``nixl``: how its ends are started, where an arm is called so."""
    host, commit, created = describe_host(), describe_commit(), datetime.now(UTC)
    links: list[LinkRecord] = []
    cells: list[Cell] = []
    progress = _Progress(trials, report)
    for tcp, alike in groupby(trials, key=lambda trial: trial.tcp):
        group = list(alike)
        with open_link(kind, group[0].profile, tcp) as link:
            async with _processes(link, group, nixl) as ends_of:
                for profile, on_it in groupby(group, key=lambda trial: trial.profile):
                    link.change(profile)
                    found = await asyncio.to_thread(link.measure)
                    links.append(link_record(found, host.congestion))
                    line = line_bytes_per_s(profile, found.rate_bps)
                    for trial in on_it:
                        measured = await measure(trial, link, ends_of, line, progress.advance)
                        cells += cells_of(measured, links[-1], len(links) - 1, line)
    return TransferRecord(
        scenario, created.isoformat(timespec="seconds"), host, commit, tuple(links), tuple(cells)
    )


@asynccontextmanager
async def _processes(
    link: Link, trials: Sequence[Trial], nixl: Program | None
) -> AsyncIterator[Callable[[str], Ends]]:
    """Says in which processes an arm runs. NIXL's are started only where it is measured."""
    size = pool_bytes(trials)
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(open_ends(link, size, OUR_ENDS))
        theirs = ours
        if nixl is not None and any(NIXL in trial.arms for trial in trials):
            theirs = await stack.enter_async_context(open_ends(link, size, nixl))
        yield lambda arm: theirs if arm == NIXL else ours


class _Progress:
    """Counts repetitions; each is about as long as its trial's limit allows."""

    def __init__(self, trials: Sequence[Trial], report: Report) -> None:
        self._total = sum(trial.repetitions * len(trial.arms) for trial in trials)
        self._done = 0
        self._report = report

    def advance(self) -> None:
        self._done += 1
        self._report("transfers", self._done / self._total)
