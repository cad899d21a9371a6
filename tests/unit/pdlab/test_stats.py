"""The tests are calibrated on data whose truth is known: drifting, skewed, with outliers."""

from itertools import product

import numpy as np
import pytest

from pdlab.stats import (
    ALPHA,
    MIN_PAIRS,
    holm,
    median_interval,
    paired_effect,
    pooled_effect,
    rank_sum_p,
    sign_flip_p,
    unpaired_effect,
)

NUM_EXPERIMENTS = 200


def interleaved(rng: np.random.Generator, num_blocks: int, effect: float = 1.0):
    """Two arms on a machine that drifts by a third, with skewed noise and a few long stalls."""
    drift = 1 + np.cumsum(rng.normal(0, 0.08, num_blocks))
    noise = rng.lognormal(0, 0.05, (2, num_blocks))
    stalls = 1 + 2 * (rng.random((2, num_blocks)) < 0.05)
    a, b = np.abs(drift) * noise * stalls
    return a.tolist(), (effect * b).tolist()


def test_no_effect_is_found_no_more_often_than_promised() -> None:
    rng = np.random.default_rng(1)
    found = sum(paired_effect(*interleaved(rng, 20)).found for _ in range(NUM_EXPERIMENTS))
    assert found / NUM_EXPERIMENTS <= ALPHA


def test_no_effect_between_two_runs_is_found_no_more_often_than_promised() -> None:
    rng = np.random.default_rng(2)
    arms = [rng.lognormal(0, 0.1, (2, 15)).tolist() for _ in range(100)]
    found = sum(unpaired_effect(a, b).found for a, b in arms)
    assert found <= 11  # of 100: the 99th percentile at a rate of 0.05


def test_an_effect_is_found_under_drift_that_is_larger() -> None:
    rng = np.random.default_rng(3)
    found = sum(paired_effect(*interleaved(rng, 20, 1.2)).found for _ in range(100))
    assert found >= 80


def test_the_interval_holds_the_true_ratio() -> None:
    rng = np.random.default_rng(4)
    effects = [paired_effect(*interleaved(rng, 20, 1.3)) for _ in range(200)]
    held = sum(effect.ratio_interval.contains(1.3) for effect in effects)
    assert held >= 0.9 * len(effects)


def test_the_signed_rank_test_agrees_with_counting_every_sign() -> None:
    differences = np.array([0.3, -0.1, 0.4, 0.4, -0.7, 0.9, 0.2])
    ranks = np.array([3, 1, 4.5, 4.5, 6, 7, 2])
    sums = [ranks[np.array(signs) > 0].sum() for signs in product([-1, 1], repeat=7)]
    observed = ranks[differences > 0].sum()
    above = np.mean([total >= observed for total in sums])
    assert sign_flip_p(differences) == pytest.approx(2 * above)


def test_the_signed_rank_test_agrees_with_its_published_table() -> None:
    """n = 10, smaller rank sum 8: two-sided p 0.0488, the classical 5 % critical value."""
    differences = np.array([-8, 1, 2, 3, 4, 5, 6, 7, 9, 10], float)
    assert sign_flip_p(differences) == pytest.approx(50 / 1024, abs=1e-9)


def test_the_rank_sum_test_agrees_with_counting_every_labelling() -> None:
    """All of B above all of A, 4 and 4: 2 of 70 labellings are as far apart."""
    p = rank_sum_p([(np.arange(4.0), np.arange(4.0) + 10)], np.random.default_rng(0))
    assert p == pytest.approx(2 / 70, abs=0.005)


def test_equal_arms_differ_in_nothing() -> None:
    effect = paired_effect([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert (effect.ratio, effect.difference, effect.p) == (1.0, 0.0, 1.0)
    assert not effect.found


def test_fewer_pairs_than_the_minimum_find_nothing_and_the_minimum_may() -> None:
    a = [1.0 + i / 100 for i in range(MIN_PAIRS)]
    b = [value * 100 for value in a]
    assert paired_effect(a, b).found
    assert not paired_effect(a[1:], b[1:]).found


def test_an_arm_that_moved_nothing_has_a_difference_and_no_ratio() -> None:
    effect = paired_effect([0.0] * 8, [5.0] * 8)
    assert effect.ratio is None
    assert effect.ratio_interval is None
    assert effect.difference == 5.0
    assert effect.found


def test_one_pair_is_all_that_is_known() -> None:
    effect = paired_effect([2.0], [3.0])
    assert effect.ratio == 1.5
    assert effect.p == 1.0


def test_the_same_values_give_the_same_answer() -> None:
    a, b = interleaved(np.random.default_rng(5), 9)
    assert paired_effect(a, b) == paired_effect(a, b)
    assert unpaired_effect(a, b) == unpaired_effect(a, b)
    assert median_interval(a) == median_interval(a)


def test_the_median_lies_in_its_interval() -> None:
    values = [1.0, 1.1, 1.2, 1.3, 9.0]
    interval = median_interval(values)
    assert interval.contains(1.2)
    assert interval.low >= 1.0


def test_many_questions_make_each_answer_weaker() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5]) == [0.5]
    assert holm([]) == []


def five_blocks_of_three(rng: np.random.Generator, sigma: float, effect: float):
    """Conditions whose values are of different magnitude."""
    rows = [(scale, *rng.lognormal(0, sigma, (2, 5))) for scale in (1, 9, 100)]
    return [(scale * a, effect * scale * b) for scale, a, b in rows]


@pytest.mark.parametrize("paired", [True, False])
def test_pooled_rows_find_no_effect_where_there_is_none(paired: bool) -> None:
    rng = np.random.default_rng(6)
    experiments = [five_blocks_of_three(rng, 0.1, 1.0) for _ in range(60)]
    found = sum(pooled_effect(rows, paired=paired).found for rows in experiments)
    assert found <= 8  # of 60: the 99th percentile at a rate of 0.05


@pytest.mark.parametrize("paired", [True, False])
def test_few_blocks_of_many_conditions_are_enough_together(paired: bool) -> None:
    pooled = pooled_effect(five_blocks_of_three(np.random.default_rng(7), 0.02, 1.2), paired=paired)
    assert pooled.found
    assert pooled.ratio_interval.contains(1.2)


def test_rows_that_moved_nothing_are_in_no_pool() -> None:
    assert pooled_effect([([0.0, 1.0], [1.0, 1.0])], paired=True) is None
    pooled = pooled_effect([([0.0, 1.0], [1.0, 1.0]), ([2.0, 2.0], [4.0, 4.0])], paired=True)
    assert (pooled.num_rows, pooled.ratio) == (1, pytest.approx(2.0))
