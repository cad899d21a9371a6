"""Steps that are no ordinary blocks: a new pair, a small transfer behind a large one, a link that
changes meanwhile.

Each yields cells whose ``case`` says what they are. All of them use ``auto``.
"""

import asyncio
from dataclasses import dataclass, replace
from statistics import median_low

from pdlab.link import LinkProfile
from pdlab.records import Cell
from pdlab.transfer.bench import OUR_ENDS, Bench
from pdlab.transfer.blocks import hard_limit_s, number
from pdlab.transfer.cells import cell_of
from pdlab.transfer.ends import open_ends
from pdlab.transfer.lane import Lane
from pdlab.transfer.messages import Told, Watched
from pdlab.transfer.pool import Extent
from pdlab.transfer.sizing import LINE_SHARE
from pdlab.transfer.trial import Trial

FIRST, TENTH = "first of a new pair", "tenth of a new pair"
ALONE, BEHIND = "alone", "behind a large one"

RATE_DROP = "rate / 10 in mid-transfer"
RTT_RISE = "RTT x 4 in mid-transfer"
CUT = "a 2 s cut in mid-transfer"

NUM_OF_A_NEW_PAIR = 10
ROUND_TRIPS_TO_ADAPT = 5


@dataclass(frozen=True, slots=True)
class NewPair:
    """The first and the tenth transfer of a pair that was known for ``known_s`` and never used.

    Processes are new for each repetition: nothing else has grown them, either.
    """

    trial: Trial
    known_s: float = 5.0

    @property
    def num_moves(self) -> int:
        return self.trial.repetitions

    async def run(self, bench: Bench) -> list[Cell]:
        trial, arm = self.trial, self.trial.arms[0]
        extent = Extent(0, trial.num_pages)
        lanes: dict[int, Lane] = {}
        for _ in range(trial.repetitions):
            async with open_ends(bench.link, bench.pool_bytes, OUR_ENDS) as ends:
                lane = Lane(arm, ends, trial.page_bytes)
                await number(ends, trial.page_bytes, trial.num_pages)
                await lane.open(bench.link, trial.overrides)
                await asyncio.sleep(self.known_s)
                for place in range(NUM_OF_A_NEW_PAIR):
                    sample = await lane.move(extent, hard_limit_s(trial))
                    kept = lanes.setdefault(place, Lane(arm, ends, trial.page_bytes))
                    kept.samples.append(sample)
            bench.advance()
        first, tenth = lanes[0], lanes[NUM_OF_A_NEW_PAIR - 1]
        return [cell_of(trial, first, bench, FIRST), cell_of(trial, tenth, bench, TENTH)]


@dataclass(frozen=True, slots=True)
class Behind:
    """A transfer of ``small_bytes``, alone and then ``after_s`` behind that of all the rest."""

    trial: Trial
    small_bytes: int
    after_s: float = 0.7

    @property
    def num_moves(self) -> int:
        return self.trial.repetitions

    async def run(self, bench: Bench) -> list[Cell]:
        trial, ends = self.trial, bench.ends_of(self.trial.arms[0])
        num_small = self.small_bytes // trial.page_bytes
        num_large = trial.num_pages - num_small
        large, small = Extent(0, num_large), Extent(num_large, num_small)
        await number(ends, trial.page_bytes, trial.num_pages)
        lane = Lane(trial.arms[0], ends, trial.page_bytes)
        await lane.open(bench.link, trial.overrides)
        alone, behind = replace(lane, samples=[]), replace(lane, samples=[])
        limit_s = hard_limit_s(trial)
        await lane.move(large, limit_s, warms=True)
        for _ in range(trial.repetitions):
            alone.samples.append(await lane.move(small, limit_s))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(lane.move(large, limit_s))
                await asyncio.sleep(self.after_s)
                behind.samples.append(await lane.move(small, limit_s))
            bench.advance()
        await lane.close()
        small_trial = replace(trial, payload_bytes=self.small_bytes)
        return [
            cell_of(small_trial, alone, bench, ALONE),
            cell_of(small_trial, behind, bench, BEHIND),
        ]


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to the link in the middle of a transfer: another profile, or a cut."""

    case: str
    profile: LinkProfile | None = None
    cut_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Midway:
    """A transfer during which the link changes; before each one the link is as at first, and warm.

    ``window_bytes`` of its cell is the window's target ``ROUND_TRIPS_TO_ADAPT`` after the old
    flight has drained, the median of all repetitions; a cell of a new profile states that profile's
    round trip and rate."""

    trial: Trial
    change: Change
    after_s: float = 0.7

    @property
    def num_moves(self) -> int:
        return self.trial.repetitions

    async def run(self, bench: Bench) -> list[Cell]:
        trial, ends = self.trial, bench.ends_of(self.trial.arms[0])
        await number(ends, trial.page_bytes, trial.num_pages)
        lane = Lane(trial.arms[0], ends, trial.page_bytes)
        await lane.open(bench.link, trial.overrides)
        extent, limit_s = Extent(0, trial.num_pages), hard_limit_s(trial)
        for _ in range(trial.repetitions):
            await lane.move(extent, limit_s, warms=True)
            async with asyncio.TaskGroup() as tasks:
                moving = tasks.create_task(lane.move(extent, limit_s, watch=True))
                await asyncio.sleep(self.after_s)
                self._happen(bench)
            lane.samples.append(moving.result())
            bench.link.change(trial.profile)
            bench.advance()
        await lane.close()
        return [self._cell(lane, bench)]

    def _happen(self, bench: Bench) -> None:
        if self.change.profile is not None:
            bench.link.change(self.change.profile)
        if self.change.cut_s:
            bench.link.cut(self.change.cut_s)

    def _cell(self, lane: Lane, bench: Bench) -> Cell:
        profile = self.change.profile or self.trial.profile
        cell = cell_of(self.trial, lane, bench, self.change.case)
        told = (sample.sent.told for sample in lane.samples)
        targets = [adapted_bytes(one, profile, self.after_s) for one in told if one is not None]
        known = [target for target in targets if target is not None]
        # A transfer that was over too soon has no target, which is no reason to leave it out.
        target = median_low(known) if known and len(known) == len(targets) else None
        return replace(cell, rtt_s=profile.rtt_s, rate_bps=profile.rate_bps, window_bytes=target)


def adapted_bytes(told: Told, profile: LinkProfile, changed_s: float) -> int | None:
    """The target five round trips after what was in flight at the change has drained.

    It drains at the new rate, and its last acknowledgement takes a new round trip. None when the
    transfer was over before.
    """
    assert profile.rate_bps is not None, "a window follows a rate"
    before = [watched for watched in told.watched if watched.at_s <= changed_s]
    flight_bytes = before[-1].in_flight_bytes if before else 0
    drained_s = changed_s + 8 * flight_bytes / (LINE_SHARE * profile.rate_bps) + profile.rtt_s
    due_s = drained_s + ROUND_TRIPS_TO_ADAPT * profile.rtt_s
    after: list[Watched] = [watched for watched in told.watched if watched.at_s >= due_s]
    return after[0].target_bytes if after else None
