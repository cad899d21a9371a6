"""In which order a scenario's runs are made.

Arms are interleaved: a block holds every arm on every link of its group once, in an order drawn
anew for each block, so that a machine that warms up or slows down does so under all arms alike.
Pure, and the same for the same scenario.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from pdlab.scenario import Arm, ServingScenario

WARM_UP = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One arm on one link. ``repetition`` is the block, from 1; ``WARM_UP`` counts in no statistic.

    ``num_requests``: the workload's first so many; None: all.
    """

    arm: Arm
    link: int  # in the scenario
    repetition: int
    num_requests: int | None

    @property
    def is_warmup(self) -> bool:
        return self.repetition == WARM_UP


def link_groups(scenario: ServingScenario) -> list[tuple[int, ...]]:
    """Links that are up at the same time, by their place in the scenario."""
    links = range(len(scenario.links))
    return [tuple(links)] if scenario.interleave_links else [(link,) for link in links]


def runs_of(scenario: ServingScenario, links: Sequence[int], seed: str) -> Iterator[Run]:
    """The runs of one group of links: warm-ups, then block after block."""
    repetitions = [WARM_UP] * scenario.warmup + list(range(1, scenario.repetitions + 1))
    for place, repetition in enumerate(repetitions):
        block = [
            Run(arm, link, repetition, number)
            for arm in scenario.arms
            for link in links
            for number in _sizes(scenario, arm)
            if repetition % arm.every == 0
        ]
        Random(f"{seed}/order/{place}").shuffle(block)
        yield from block


def num_runs(scenario: ServingScenario) -> int:
    return sum(1 for links in link_groups(scenario) for _ in runs_of(scenario, links, ""))


def _sizes(scenario: ServingScenario, arm: Arm) -> Sequence[int | None]:
    return (arm.num_requests,) if arm.num_requests else scenario.at_once or (None,)
