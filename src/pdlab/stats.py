"""Whether two arms differ, and by how much.

The effect is the ratio (and the difference) of the medians, with a bootstrap interval; whether it
is more than noise is asked of a permutation test on ranks, which assumes no distribution. Where
arms were interleaved, value i of both comes from block i, and whole blocks are resampled, so a
machine that drifts during the run does not count as an effect. Seeded: the same values always give
the same answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

NUM_RESAMPLES = 10_000
CONFIDENCE = 0.95
ALPHA = 0.05
MIN_PAIRS = 6  # 2 / 2**5 > ALPHA: with fewer no paired test can find anything

Floats: TypeAlias = npt.NDArray[np.float64]
Pair: TypeAlias = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true value lies, at ``CONFIDENCE``."""

    low: float
    high: float

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Effect:
    """B against A. ``ratio`` is None where A's median is not above 0."""

    num_a: int
    num_b: int
    paired: bool
    median_a: float
    median_b: float
    difference: float
    difference_interval: Interval
    ratio: float | None
    ratio_interval: Interval | None
    p: float

    @property
    def found(self) -> bool:
        """More than noise: the test says so, and the interval leaves out no effect."""
        return self.p <= ALPHA and not self.difference_interval.contains(0.0)


@dataclass(frozen=True, slots=True)
class PooledEffect:
    """B against A over several conditions: the geometric mean of their ratios of medians."""

    num_rows: int
    ratio: float
    ratio_interval: Interval
    p: float

    @property
    def found(self) -> bool:
        return self.p <= ALPHA and not self.ratio_interval.contains(1.0)


def paired_effect(a: Sequence[float], b: Sequence[float], *, seed: int = 0) -> Effect:
    """``a[i]`` and ``b[i]`` were measured next to each other. Needs at least one pair."""
    return _effect(_arrays(a, b), True, seed)


def unpaired_effect(a: Sequence[float], b: Sequence[float], *, seed: int = 0) -> Effect:
    """``a`` and ``b`` come from two runs. Needs at least one value of each."""
    return _effect(_arrays(a, b), False, seed)


def pooled_effect(
    rows: Sequence[tuple[Sequence[float], Sequence[float]]], *, paired: bool, seed: int = 0
) -> PooledEffect | None:
    """Of several conditions at once: few blocks of each may be many together.

    Rows with a value that is not above 0 have no ratio and are left out; None when none is left.
    """
    usable = [_arrays(a, b) for a, b in rows if min(*a, *b) > 0]
    if not usable:
        return None
    rng = np.random.default_rng(seed)
    logs = [np.log(np.median(b)) - np.log(np.median(a)) for a, b in usable]
    drawn = [_resampled_medians(a, b, paired, rng) for a, b in usable]
    interval = _interval(np.exp(np.mean([np.log(b) - np.log(a) for a, b in drawn], axis=0)))
    steps = np.concatenate([np.log(b) - np.log(a) for a, b in usable]) if paired else None
    p = rank_sum_p(usable, rng) if steps is None else sign_flip_p(steps)
    return PooledEffect(len(usable), float(np.exp(np.mean(logs))), interval, p)


def median_interval(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Bootstrap interval of the median of one arm.

    Of fewer than 6 values it is their range, which holds the true median less often than
    ``CONFIDENCE``: n values do with a chance of 1 - 2 / 2**n.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(values), size=(NUM_RESAMPLES, len(values)))
    return _interval(np.median(np.asarray(values, float)[drawn], axis=1))


def sign_flip_p(differences: Floats) -> float:
    """Exact two-sided p of the signed-rank sum when every sign is a fair coin (Wilcoxon 1945).

    Differences of 0 say nothing and are left out; ties share their mean rank. Ranks are doubled,
    so that those stay whole, and the sum's distribution is built up one difference at a time.
    """
    nonzero = differences[differences != 0]
    ranks = np.rint(2 * _mean_ranks(np.abs(nonzero))).astype(int)
    chances = np.ones(1)
    for rank in ranks:
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    positive = int(ranks[nonzero > 0].sum())
    return _two_sided(chances[: positive + 1].sum(), chances[positive:].sum())


def rank_sum_p(rows: Sequence[Pair], rng: np.random.Generator) -> float:
    """Two-sided p of the rank sums of all B's (Mann and Whitney 1947), summed over the rows, when
    labels within each row are dealt anew; by sampling."""
    observed, dealt = 0.0, np.zeros(NUM_RESAMPLES)
    for a, b in rows:
        ranks = _mean_ranks(np.concatenate([a, b]))
        observed += ranks[len(a) :].sum()
        shuffled = rng.permuted(np.tile(ranks, (NUM_RESAMPLES, 1)), axis=1)
        dealt += shuffled[:, len(a) :].sum(axis=1)
    below = (1 + np.count_nonzero(dealt <= observed)) / (1 + NUM_RESAMPLES)
    above = (1 + np.count_nonzero(dealt >= observed)) / (1 + NUM_RESAMPLES)
    return _two_sided(below, above)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted for having asked ``len(p_values)`` questions at once (Holm 1979), in their order."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for place, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, p_values[i] * (len(p_values) - place)))
        adjusted[i] = largest
    return adjusted


def _arrays(a: Sequence[float], b: Sequence[float]) -> Pair:
    assert len(a) and len(b)
    return np.asarray(a, float), np.asarray(b, float)


def _effect(pair: Pair, paired: bool, seed: int) -> Effect:
    rng = np.random.default_rng(seed)
    a, b = pair
    medians_a, medians_b = _resampled_medians(a, b, paired, rng)
    median_a, median_b = median(a.tolist()), median(b.tolist())
    positive = bool((medians_a > 0).all())
    return Effect(
        num_a=len(a),
        num_b=len(b),
        paired=paired,
        median_a=median_a,
        median_b=median_b,
        difference=median_b - median_a,
        difference_interval=_interval(medians_b - medians_a),
        ratio=median_b / median_a if positive else None,
        ratio_interval=_interval(medians_b / medians_a) if positive else None,
        p=sign_flip_p(b - a) if paired else rank_sum_p([pair], rng),
    )


def _resampled_medians(a: Floats, b: Floats, paired: bool, rng: np.random.Generator) -> Pair:
    """Of ``NUM_RESAMPLES`` draws each; of the same blocks when the two are paired."""
    blocks = rng.integers(len(a), size=(NUM_RESAMPLES, len(a)))
    others = blocks if paired else rng.integers(len(b), size=(NUM_RESAMPLES, len(b)))
    return np.median(a[blocks], axis=1), np.median(b[others], axis=1)


def _interval(samples: Floats) -> Interval:
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(samples, [tail, 100 - tail])
    return Interval(float(low), float(high))


def _mean_ranks(values: Floats) -> Floats:
    """1 for the smallest; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[inverse]
    return ranks


def _two_sided(below: float, above: float) -> float:
    return float(min(1.0, 2 * min(below, above)))
