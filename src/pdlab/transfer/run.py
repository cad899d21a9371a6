"""``run_steps`` is a whole experiment: links come up, are measured, steps run; a record results.

Steps that differ only in the link's profile share a link and its two ends: the profile is changed
in place, and since every step opens connections of its own and warms them, none sees another's.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Self

from pdcore.errors import PdspanError, root_cause
from pdlab.host import describe_commit, describe_host
from pdlab.link import Link, LinkProfile, MeasuredLink, open_link
from pdlab.link_record import link_record
from pdlab.records import Cell, LinkRecord, TransferRecord
from pdlab.transfer.arms import NIXL
from pdlab.transfer.bench import OUR_ENDS, Bench, Step
from pdlab.transfer.cells import failed_cells
from pdlab.transfer.ends import Ends, Program, open_ends
from pdlab.transfer.sizing import line_bytes_per_s
from pdlab.transfer.trial import pool_bytes

Report = Callable[[str, float], None]


async def run_steps(
    scenario: str, steps: Sequence[Step], report: Report, *, nixl: Program | None = None
) -> TransferRecord:
    """``nixl``: how its ends are started, where an arm is called so. Raises what kept a link or its
    ends from coming up; what goes wrong later stands in the record."""
    try:
        return await _run_all(scenario, steps, report, nixl)
    except BaseExceptionGroup as group:
        raise root_cause(group) from group


async def _run_all(
    scenario: str, steps: Sequence[Step], report: Report, nixl: Program | None
) -> TransferRecord:
    host, commit, created = describe_host(), describe_commit(), datetime.now(UTC)
    links: list[LinkRecord] = []
    cells: list[Cell] = []
    progress = _Progress(steps, report)
    for (kind, tcp), alike in groupby(steps, key=lambda step: (step.trial.kind, step.trial.tcp)):
        group = list(alike)
        with open_link(kind, group[0].trial.profile, tcp) as link:
            async with _Processes(link, group, nixl) as processes:
                for profile, on_it in groupby(group, key=lambda step: step.trial.profile):
                    found = await _changed(link, profile)
                    links.append(link_record(found, host.congestion))
                    place = _Place(link, links[-1], len(links) - 1, found)
                    for step in on_it:
                        cells += await _run(step, place, processes, progress)
    when = created.isoformat(timespec="seconds")
    return TransferRecord(scenario, when, host, commit, tuple(links), tuple(cells))


async def _changed(link: Link, profile: LinkProfile) -> MeasuredLink:
    """The link as it is from now on. Measuring takes seconds, in which the ends are heard."""
    link.change(profile)
    return await asyncio.to_thread(link.measure)


@dataclass(frozen=True, slots=True)
class _Place:
    link: Link
    record: LinkRecord
    index: int
    found: MeasuredLink


async def _run(
    step: Step, place: _Place, processes: "_Processes", progress: "_Progress"
) -> list[Cell]:
    """A step that fails costs its own cells. After any failure the ends start anew.

    A void one is run again, since the machine may have been busy; both are recorded.
    """
    done = progress.done
    if step.trial.fresh_ends:
        await processes.restart()
    bench = Bench(
        place.link,
        place.record,
        place.index,
        line_bytes_per_s(step.trial.profile, place.found.rate_bps),
        processes.pool_bytes,
        processes.of_arm,
        progress.advance,
    )
    try:
        cells = await step.run(bench)
        if any(cell.void for cell in cells):
            progress.stand_at(done)
            cells += await step.run(bench)
    except PdspanError as error:
        cells = failed_cells(step.trial, error, bench)
    except BaseExceptionGroup as group:
        cells = failed_cells(step.trial, root_cause(group), bench)
    progress.stand_at(done + step.num_moves)
    if any(not cell.goodput_bps for cell in cells):
        await processes.restart()
    return cells


class _Processes:
    """The ends on one link, until the block is left. NIXL's are started only where it is measured.

    Entered, restarted and left by one task, as their task groups want.
    """

    def __init__(self, link: Link, steps: Sequence[Step], nixl: Program | None) -> None:
        self.pool_bytes = pool_bytes(step.trial for step in steps)
        self._link = link
        uses_nixl = any(NIXL in step.trial.arms for step in steps)
        self._programs = {False: OUR_ENDS} | ({True: nixl} if nixl and uses_nixl else {})
        self._stack = AsyncExitStack()
        self._ends: dict[bool, Ends] = {}

    def of_arm(self, arm: str) -> Ends:
        return self._ends[arm == NIXL]

    async def restart(self) -> None:
        await self._stack.aclose()
        for is_nixl, program in self._programs.items():
            opening = open_ends(self._link, self.pool_bytes, program)
            self._ends[is_nixl] = await self._stack.enter_async_context(opening)

    async def __aenter__(self) -> Self:
        await self.restart()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


class _Progress:
    def __init__(self, steps: Sequence[Step], report: Report) -> None:
        self._total = sum(step.num_moves for step in steps)
        self._report = report
        self.stand_at(0)

    def advance(self) -> None:
        self.stand_at(self.done + 1)

    def stand_at(self, done: int) -> None:
        self.done = done
        self._report("transfers", done / self._total)
