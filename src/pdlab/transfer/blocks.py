"""The ordinary step: arms open, all of them are warmed alike, then block follows block.

A block is one repetition of every arm, in an order of its own. Before each repetition the same
bytes go over the same connections once more, so that an arm is not slower for having waited while
others were measured. An arm that fails is given up; the others go on.
"""

import random
from dataclasses import dataclass

from kvtransfer.limits import limits_for
from pdcore.errors import PdspanError
from pdcore.settings import TransferSettings, cluster_from_table
from pdlab.records import Cell
from pdlab.transfer.bench import Bench
from pdlab.transfer.cells import cells_of
from pdlab.transfer.ends import Ends
from pdlab.transfer.lane import Lane
from pdlab.transfer.messages import Expected, Expecting, Number, Numbered
from pdlab.transfer.pool import Extent, layout_of
from pdlab.transfer.sizing import (
    WarmUp,
    pages_by_model,
    pages_by_rate,
    waits_for_each_frame,
    warm_up,
)
from pdlab.transfer.trial import Trial

NUMBER_S = 120.0
HARD_LIMIT_FACTOR = 4
HARD_LIMIT_S = 10.0  # at least so much longer than the limit


@dataclass(frozen=True, slots=True)
class Blocks:
    """The ordinary step."""

    trial: Trial

    @property
    def num_moves(self) -> int:
        return self.trial.repetitions * len(self.trial.arms)

    async def run(self, bench: Bench) -> list[Cell]:
        trial = self.trial
        lanes = [Lane(arm, bench.ends_of(arm), trial.page_bytes) for arm in trial.arms]
        warm = warm_up(trial, bench.line_bytes_per_s, bench.pool_bytes)
        for ends in {id(lane.ends): lane.ends for lane in lanes}.values():
            await number(ends, trial.page_bytes, max(trial.num_pages, warm.num_pages))
        run = _Run(trial, bench, warm)
        for lane in lanes:
            await run.prepare(lane)
        order = random.Random(str(trial))
        for _ in range(trial.repetitions):
            for lane in order.sample(lanes, len(lanes)):
                await run.repeat(lane)
                bench.advance()
        for lane in lanes:
            if lane.failure is None:
                await lane.close()
        return cells_of(trial, lanes, bench)


async def number(ends: Ends, page_bytes: int, num_pages: int) -> None:
    """Both ends see pages of this size, and the receiver knows what so many of them hold."""
    numbered = await ends.sender.ask(Number(page_bytes, num_pages), Numbered, NUMBER_S)
    await ends.receiver.ask(Number(page_bytes), Numbered, NUMBER_S)
    await ends.receiver.ask(Expected(numbered.digests), Expecting, NUMBER_S)


@dataclass(frozen=True, slots=True)
class _Run:
    trial: Trial
    bench: Bench
    warm: WarmUp

    async def prepare(self, lane: Lane) -> None:
        """Open it, carry what every arm carries first, and decide how much it moves."""
        try:
            await lane.open(self.bench.link, self.trial.overrides)
            for _ in range(self.warm.num_moves):
                lane.warm_bytes += await self._warm(lane)
            lane.num_pages = self._pages(lane)
        except PdspanError as error:
            lane.failure = error

    async def repeat(self, lane: Lane) -> None:
        if lane.failure is not None:
            return
        try:
            await self._warm(lane)
            sample = await lane.move(Extent(0, lane.num_pages), hard_limit_s(self.trial))
            lane.samples.append(sample)
        except PdspanError as error:
            lane.failure = error

    async def _warm(self, lane: Lane) -> int:
        extent = Extent(0, self.warm.num_pages)
        sample = await lane.move(extent, hard_limit_s(self.trial), warms=True)
        duration_s = sample.sent.duration_s
        on_the_way_s = max(duration_s - self.trial.profile.rtt_s, duration_s / 4)
        lane.warm_bytes_per_s = max(lane.warm_bytes_per_s, sample.num_bytes / on_the_way_s)
        return sample.num_bytes

    def _pages(self, lane: Lane) -> int:
        if not waits_for_each_frame(lane.arm):
            return pages_by_rate(self.trial, lane.warm_bytes_per_s)
        layout = layout_of(self.trial.page_bytes)
        limits = limits_for(lane.arm, settings_of(self.trial), layout)
        return pages_by_model(self.trial, self.bench.line_bytes_per_s, limits, layout.layer_bytes)


def hard_limit_s(trial: Trial) -> float:
    """A repetition that takes so long is given up."""
    return max(HARD_LIMIT_FACTOR * trial.limit_s, HARD_LIMIT_S + trial.limit_s)


def settings_of(trial: Trial) -> TransferSettings:
    return cluster_from_table({}, trial.overrides).transfer
