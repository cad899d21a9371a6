"""When requests arrive. All but ``one_at_a_time`` are open-loop: a slow server delays no arrival,
so a latency counted from the scheduled time includes the wait that the slowness caused."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count, repeat
from random import Random
from typing import Annotated, Protocol

from pdcore.typed_table import Within
from pdlab.workloads.request import WorkRequest

Rate = Annotated[float, Within(0, above=True)]


class Arrivals(Protocol):
    def offsets_s(self, random: Random) -> Iterator[float | None]:
        """Seconds since the run's start, without end, never falling. None: when the request before
        has ended."""
        ...


@dataclass(frozen=True, slots=True)
class OneAtATime:
    """Closed loop, one client. The batch shape never varies, so arms' tokens can be compared."""

    def offsets_s(self, random: Random) -> Iterator[float | None]:
        return repeat(None)


@dataclass(frozen=True, slots=True)
class Burst:
    """All at once."""

    def offsets_s(self, random: Random) -> Iterator[float | None]:
        return repeat(0.0)


@dataclass(frozen=True, slots=True)
class Constant:
    per_s: Rate

    def offsets_s(self, random: Random) -> Iterator[float | None]:
        return (number / self.per_s for number in count())


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent users: exponential gaps with a mean of 1 / ``per_s``."""

    per_s: Rate

    def offsets_s(self, random: Random) -> Iterator[float | None]:
        return accumulate(random.expovariate(self.per_s) for _ in count())


ARRIVALS: Mapping[str, type[Arrivals]] = {
    "one_at_a_time": OneAtATime,
    "burst": Burst,
    "constant": Constant,
    "poisson": Poisson,
}


def scheduled(
    requests: Sequence[WorkRequest], arrivals: Arrivals | None, seed: str
) -> list[WorkRequest]:
    """The requests at these arrivals; None leaves them as their workload has them."""
    if arrivals is None:
        return list(requests)
    offsets_s = arrivals.offsets_s(Random(f"{seed}/arrivals"))
    return [
        replace(request, arrival_s=offset_s)
        for request, offset_s in zip(requests, offsets_s, strict=False)
    ]
