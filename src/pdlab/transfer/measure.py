"""One trial on ends that are up: arms open, all of them warmed alike, then block after block.

A block is one repetition of every arm, in an order of its own. Before each repetition the same
bytes go over the same connections once more, so that an arm is not slower for having waited while
others were measured. An arm that fails is given up; the others go on.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from kvtransfer.limits import limits_for
from pdcore.errors import PdspanError
from pdcore.settings import TransferSettings, cluster_from_table
from pdlab.link import Link
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
HARD_LIMIT_FACTOR = 4  # a repetition that takes so many times its limit is given up
HARD_LIMIT_S = 10.0  # and at least so much longer


@dataclass(frozen=True, slots=True)
class Measured:
    trial: Trial
    lanes: tuple[Lane, ...]


async def measure(
    trial: Trial,
    link: Link,
    ends: Callable[[str], Ends],
    line_bytes_per_s: float,
    advance: Callable[[], None],
) -> Measured:
    """``ends`` says which processes an arm runs in; ``advance`` is called after each repetition."""
    lanes = tuple(Lane(arm, ends(arm), trial.page_bytes) for arm in trial.arms)
    for pair in {id(lane.ends): lane.ends for lane in lanes}.values():
        await _number(pair, trial)
    run = _Run(trial, line_bytes_per_s, warm_up(trial, line_bytes_per_s))
    for lane in lanes:
        await run.prepare(lane, link)
    order = random.Random(str(trial))
    for _ in range(trial.repetitions):
        for lane in order.sample(lanes, len(lanes)):
            await run.repeat(lane)
            advance()
    for lane in lanes:
        if lane.failure is None:
            await lane.close()
    return Measured(trial, lanes)


async def _number(ends: Ends, trial: Trial) -> None:
    """Both ends see pages of this size, and the receiver knows what will come."""
    numbered = await ends.sender.ask(Number(trial.page_bytes, trial.num_pages), Numbered, NUMBER_S)
    await ends.receiver.ask(Number(trial.page_bytes), Numbered, NUMBER_S)
    await ends.receiver.ask(Expected(numbered.digests), Expecting, NUMBER_S)


@dataclass(frozen=True, slots=True)
class _Run:
    trial: Trial
    line_bytes_per_s: float
    warm: WarmUp

    async def prepare(self, lane: Lane, link: Link) -> None:
        """Open it, carry what every arm carries first, and decide how much it moves."""
        try:
            await lane.open(link, self.trial.overrides)
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
            sample = await lane.move(Extent(0, lane.num_pages), self._hard_limit_s)
            lane.samples.append(sample)
        except PdspanError as error:
            lane.failure = error

    async def _warm(self, lane: Lane) -> int:
        extent = Extent(0, self.warm.num_pages)
        sample = await lane.move(extent, self._hard_limit_s, warms=True)
        duration_s = sample.sent.duration_s
        on_the_way_s = max(duration_s - self.trial.profile.rtt_s, duration_s / 4)
        lane.warm_bytes_per_s = max(lane.warm_bytes_per_s, sample.num_bytes / on_the_way_s)
        return sample.num_bytes

    def _pages(self, lane: Lane) -> int:
        if not waits_for_each_frame(lane.arm):
            return pages_by_rate(self.trial, lane.warm_bytes_per_s)
        layout = layout_of(self.trial.page_bytes)
        limits = limits_for(lane.arm, settings_of(self.trial), layout)
        return pages_by_model(self.trial, self.line_bytes_per_s, limits, layout.layer_bytes)

    @property
    def _hard_limit_s(self) -> float:
        return max(HARD_LIMIT_FACTOR * self.trial.limit_s, HARD_LIMIT_S + self.trial.limit_s)


def settings_of(trial: Trial) -> TransferSettings:
    return cluster_from_table({}, trial.overrides).transfer
