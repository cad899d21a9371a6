"""One request of a workload, and what a workload is.

Prompts are token ids wherever the workload makes them up, so that a length is exact for any model;
text where a user wrote it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeAlias

Prompt: TypeAlias = "tuple[int, ...] | str"


@dataclass(frozen=True, slots=True)
class WorkRequest:
    """``arrival_s`` counts from the run's start; None: when the request before it has ended."""

    prompt: Prompt
    output_tokens: int
    arrival_s: float | None = None


class Workload(Protocol):
    """A frozen dataclass of parameters, as they stand in a scenario."""

    def requests(self, vocabulary: Sequence[int], seed: str) -> list[WorkRequest]:
        """The same list for the same arguments, on any machine. Raises ConfigError for a file that
        cannot be read."""
        ...


def random_tokens(vocabulary: Sequence[int], count: int, random: Random) -> tuple[int, ...]:
    return tuple(random.choices(vocabulary, k=count))
