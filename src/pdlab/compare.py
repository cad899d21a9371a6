"""Two arms compared: the effect under each condition, and what speaks against believing it.

Within one record the arms were interleaved, so block i of one is paired with block i of the other.
Values of two records come from two runs, are not paired, and the comparison says so. A difference
between what two arms computed or moved is not a statistic: it is listed, and the comparison fails.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pdcore.errors import ConfigError
from pdlab.conditions import Condition
from pdlab.doubts import comparable_results, mismatches, pair_doubts, run_doubts, two_run_doubts
from pdlab.records import Record, TransferRecord
from pdlab.samples import Metric, Pairs, Samples, metric_named, samples_of
from pdlab.stats import (
    ALPHA,
    MIN_PAIRS,
    Effect,
    PooledEffect,
    holm,
    paired_effect,
    pooled_effect,
    unpaired_effect,
)

AA_RUNS = 20
AA_ALLOWED = 2  # of so many runs


@dataclass(frozen=True, slots=True)
class Row:
    """One condition. ``adjusted_p`` is the effect's p, adjusted for the number of questions."""

    arm_a: str
    arm_b: str
    condition: Condition
    effect: Effect
    adjusted_p: float

    @property
    def found(self) -> bool:
        return self.effect.found and self.adjusted_p <= ALPHA


@dataclass(frozen=True, slots=True)
class Comparison:
    """``mismatches``: results that should be identical and are not. ``doubts``: all the rest."""

    metric: Metric
    rows: tuple[Row, ...]
    overall: PooledEffect | None  # of several rows: one more question, its p adjusted too
    mismatches: tuple[str, ...]
    doubts: tuple[str, ...]

    @property
    def found(self) -> bool:
        overall = self.overall is not None and self.overall.found
        return overall or any(row.found for row in self.rows)


@dataclass(frozen=True, slots=True)
class Calibration:
    """A/A runs: in how many of them a difference was found, where there is none."""

    num_runs: int
    num_found: int

    @property
    def passed(self) -> bool:
        return self.num_runs >= AA_RUNS and self.num_found * AA_RUNS <= AA_ALLOWED * self.num_runs


def compare_arms(
    record: Record, arms: tuple[str, str] | None = None, metric: str | None = None
) -> Comparison:
    """Two arms of one record; by default its only two. Raises ConfigError."""
    chosen = metric_named(metric, record)
    samples = _measured(record, chosen)
    name_a, name_b = arms or _only_two(samples)
    if name_a == name_b:
        raise ConfigError(f"--arms: arm {name_a!r} with itself is no comparison: choose two")
    pairs = _pairs(_of_arm(samples, name_a), _of_arm(samples, name_b))
    return _comparison(chosen, pairs, run_doubts(record), paired=True)


def compare_records(
    a: Record, b: Record, arms: tuple[str, str] | None = None, metric: str | None = None
) -> Comparison:
    """Two runs: every arm that both have, or the first of ``arms`` in A and the second in B."""
    if isinstance(a, TransferRecord) != isinstance(b, TransferRecord):
        raise ConfigError("one record is of transfers, the other of serving: nothing to compare")
    chosen = metric_named(metric, a)
    left, right = _measured(a, chosen), _measured(b, chosen)
    if not comparable_results(a, b):
        left = [replace(samples, results={}) for samples in left]
    pairs = [
        pair
        for name_a, name_b in ([arms] if arms else _shared(left, right))
        for pair in _pairs(_of_arm(left, name_a), _of_arm(right, name_b))
    ]
    doubts = dict.fromkeys([*run_doubts(a), *run_doubts(b), *two_run_doubts(a, b)])
    return _comparison(chosen, pairs, doubts, paired=False)


def calibrate(records: Iterable[Record], metric: str | None = None) -> Calibration:
    """From A/A runs, each a record with two arms that are equal but for their names."""
    found = [compare_arms(record, metric=metric).found for record in records]
    return Calibration(len(found), sum(found))


def _measured(record: Record, metric: Metric) -> list[Samples]:
    samples = samples_of(record, metric)
    if not samples:
        raise ConfigError("nothing was measured in this run: did it end early?")
    return samples


def _comparison(metric: Metric, pairs: Pairs, doubts: Iterable[str], *, paired: bool) -> Comparison:
    if not pairs:
        raise ConfigError("the two arms were never measured under the same condition")
    rows, overall = _effects([(a, b) for a, b in pairs if not a.void and not b.void], paired)
    doubts = [*doubts, *pair_doubts(pairs)]
    if paired and any(row.effect.num_a < MIN_PAIRS for row in rows):
        doubts.append(_few_blocks(rows, overall))
    if not rows:
        doubts.append(f"no block has a value of {metric.name} in both arms")
    return Comparison(metric, rows, overall, tuple(mismatches(pairs)), tuple(doubts))


def _few_blocks(rows: Sequence[Row], overall: PooledEffect | None) -> str:
    """A test of n pairs finds no p below 2 / 2**n, before it is adjusted."""
    said = f"fewer than {MIN_PAIRS} blocks: no single row of so few can be found different"
    num_pairs = sum(row.effect.num_a for row in rows)
    if overall is None or 2 / 2**num_pairs * (len(rows) + 1) > ALPHA:
        return said
    return f"{said}, only all rows together ({num_pairs} pairs)"


def _effects(pairs: Pairs, paired: bool) -> tuple[tuple[Row, ...], PooledEffect | None]:
    """A row per condition, and all of them together where there are several."""
    usable = [(a, b, values) for a, b in pairs if (values := _values(a, b, paired)) is not None]
    effect_of = paired_effect if paired else unpaired_effect
    effects = [effect_of(*values) for *_, values in usable]
    pooled = None
    if len(usable) > 1:
        pooled = pooled_effect([values for *_, values in usable], paired=paired)
    questions = [effect.p for effect in effects] + ([pooled.p] if pooled else [])
    adjusted = holm(questions)
    rows = tuple(
        Row(a.arm.name, b.arm.name, a.condition, effect, p)
        for (a, b, _), effect, p in zip(usable, effects, adjusted[: len(effects)], strict=True)
    )
    return rows, replace(pooled, p=adjusted[-1]) if pooled else None


def _values(a: Samples, b: Samples, paired: bool) -> tuple[list[float], list[float]] | None:
    """By block where the arms were interleaved; None when there is nothing to compare."""
    if paired:
        shared = sorted(a.blocks.keys() & b.blocks.keys())
        return ([a.blocks[i] for i in shared], [b.blocks[i] for i in shared]) if shared else None
    return (list(a.blocks.values()), list(b.blocks.values())) if a.blocks and b.blocks else None


def _pairs(a: Iterable[Samples], b: Iterable[Samples]) -> Pairs:
    by_condition = {samples.condition: samples for samples in b}
    return [
        (samples, by_condition[samples.condition])
        for samples in sorted(a, key=lambda samples: samples.condition)
        if samples.condition in by_condition
    ]


def _only_two(samples: Sequence[Samples]) -> tuple[str, str]:
    names = _names(samples)
    if len(names) != 2:
        raise ConfigError(f"the arms are {', '.join(names)}: choose two of them by --arms A,B")
    return names[0], names[1]


def _shared(a: Sequence[Samples], b: Sequence[Samples]) -> list[tuple[str, str]]:
    theirs = set(_names(b))
    shared = [(name, name) for name in _names(a) if name in theirs]
    if not shared:
        arms = f"{', '.join(_names(a))} and {', '.join(_names(b))}"
        raise ConfigError(f"the records share no arm ({arms}): choose two by --arms A,B")
    return shared


def _of_arm(samples: Sequence[Samples], name: str) -> list[Samples]:
    found = [s for s in samples if s.arm.name == name]
    if not found:
        raise ConfigError(f"no arm {name!r} in the record; it has {', '.join(_names(samples))}")
    return found


def _names(samples: Iterable[Samples]) -> list[str]:
    return list(dict.fromkeys(s.arm.name for s in samples))
