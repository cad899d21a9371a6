"""The sampler against exact probabilities, a plain reference, and itself in other batches."""

import math
import random
from collections import Counter
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pdcore.errors import InternalError
from pdcore.generation import SamplingParams
from pdengine.sampler import SampleRow, noise, sample

torch.set_num_threads(1)

GREEDY = SamplingParams(seed=1, temperature=0.0)
PLAIN = SamplingParams(seed=1)
INF = math.inf


def row(params: SamplingParams, position: int = 0, banned: tuple[int, ...] = ()) -> SampleRow:
    return SampleRow(params, choice=0, position=position, banned_token_ids=banned)


def drawn(logits: list[float], params: SamplingParams, num: int = 200) -> set[int]:
    """All tokens that came up at ``num`` positions."""
    rows = [row(params, position) for position in range(num)]
    return set(sample(torch.tensor([logits] * num), rows))


def chi_square(observed: Counter[int], probabilities: list[float]) -> float:
    num = observed.total()
    return sum((observed[i] - num * p) ** 2 / (num * p) for i, p in enumerate(probabilities))


# Greedy rows, bans and broken logits.


def test_greedy_takes_the_largest_and_the_first_of_equals() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 5.0, 5.0], [7.0, 7.0, 7.0]])
    assert sample(logits, [row(GREEDY)] * 3) == [1, 1, 0]


def test_no_rows_no_tokens() -> None:
    assert sample(torch.empty(0, 5), []) == []


@pytest.mark.parametrize("params", [GREEDY, PLAIN, replace(PLAIN, top_k=1, top_p=0.1, min_p=0.5)])
def test_a_vocabulary_of_one(params: SamplingParams) -> None:
    assert sample(torch.tensor([[-3.5]]), [row(params)]) == [0]


def test_banned_tokens_are_not_taken_and_logits_stay_as_they_are() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [0.0, 3.0, 1.0]])
    before = logits.clone()
    assert sample(logits, [row(GREEDY, banned=(1,)), row(GREEDY)]) == [2, 1]
    assert sample(logits, [row(GREEDY, banned=(1, 2)), row(PLAIN, banned=(0, 1))]) == [0, 2]
    assert torch.equal(logits, before)


def test_a_banned_token_outside_the_vocabulary_does_not_matter() -> None:
    assert sample(torch.tensor([[0.0, 3.0]]), [row(GREEDY, banned=(2, 99))]) == [1]


@pytest.mark.parametrize("params", [GREEDY, PLAIN])
@pytest.mark.parametrize(
    "logits", [[0.0, math.nan], [0.0, INF], [-INF, -INF], [math.nan, math.nan], [-INF, math.nan]]
)
def test_broken_logits_are_an_error_of_their_row_only(
    params: SamplingParams, logits: list[float]
) -> None:
    rows = [row(GREEDY), row(params, position=17), row(PLAIN)]
    good, broken, drawn = sample(torch.tensor([[0.0, 1.0], logits, [0.0, -INF]]), rows)
    assert (good, drawn) == (1, 0)
    assert isinstance(broken, InternalError) and "position 17" in str(broken)


@pytest.mark.parametrize("params", [GREEDY, PLAIN])
def test_nothing_but_banned_tokens_is_an_error(params: SamplingParams) -> None:
    (broken,) = sample(torch.tensor([[0.0, 1.0]]), [row(params, banned=(0, 1))])
    assert isinstance(broken, InternalError) and "-inf" in str(broken)


# Distribution.


@pytest.mark.parametrize("varying", ["seed", "choice", "position"])
def test_tokens_follow_the_exact_probabilities(varying: str) -> None:
    probabilities = [0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01]
    num = 20_000
    rows = [
        SampleRow(
            replace(PLAIN, seed=i if varying == "seed" else 3),
            choice=i if varying == "choice" else 0,
            position=i if varying == "position" else 5,
        )
        for i in range(num)
    ]
    logits = torch.tensor(probabilities).log().expand(num, -1)
    observed = Counter(sample(logits, rows))
    assert chi_square(observed, probabilities) < 27.9  # 9 degrees of freedom, p = 0.001


def test_temperature_and_filters_give_the_renormalised_probabilities() -> None:
    squared = [0.4**2, 0.3**2, 0.2**2]  # temperature 1/2; top_k keeps three of these five
    params = replace(PLAIN, temperature=0.5, top_k=3)
    num = 20_000
    logits = torch.tensor([0.4, 0.3, 0.2, 0.06, 0.04]).log().expand(num, -1)
    observed = Counter(sample(logits, [row(params, position) for position in range(num)]))
    assert observed.keys() == {0, 1, 2}
    assert chi_square(observed, [p / sum(squared) for p in squared]) < 13.8  # 2 d. o. f.


@pytest.mark.parametrize("varying", ["seed", "choice", "position", "token"])
def test_noise_is_uniform_and_does_not_repeat(varying: str) -> None:
    num, bins = 64_000 if varying == "token" else 16_000, 64
    words = {"seed": 2**63, "choice": 1, "position": 40}
    if varying == "token":
        values = noise(**words, num_tokens=num).tolist()
    else:
        values = [noise(**words | {varying: i}, num_tokens=3)[2].item() for i in range(num)]
    assert len(set(values)) == num
    assert all(0 <= value < 2**52 for value in values)
    high = Counter(value * bins >> 52 for value in values)
    low = Counter(value % bins for value in values)
    after = Counter((b - a) % 2**52 * bins >> 52 for a, b in pairwise(values))
    for observed in (high, low, after):
        assert chi_square(observed, [1 / bins] * bins) < 103.4  # 63 d. o. f., p = 0.001


def test_noise_never_changes() -> None:
    """A seed must mean the same in every version, so that a sequence can move between nodes."""
    for words in ((0, 0, 0), (1, 2, 3), (2**64 - 1, 15, 8191), (2**63, 2**40, 1)):
        assert noise(*words, num_tokens=200).tolist() == plain_noise(*words, 200)
    assert plain_noise(1, 2, 3, 2) == [0x24B11B013B9D1 >> 1, 0x1BA069D4FA89D0 >> 1]


def plain_noise(seed: int, choice: int, position: int, num_tokens: int) -> list[int]:
    """The definition, in Python's own integers."""
    state = 0
    for word in (seed, choice, position):
        state = splitmix64((state ^ word) % 2**64)
    steps = (state + token * 0x9E3779B97F4A7C15 for token in range(num_tokens))
    return [splitmix64(step % 2**64) >> 12 for step in steps]


def splitmix64(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) % 2**64
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
    return word ^ (word >> 31)


def test_logits_that_differ_in_their_last_bits_give_the_same_tokens() -> None:
    """As those of one sequence do in batches of different shapes: at most 5e-5 in float32."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(400, 4000, generator=generator) * 3
    other = logits + (torch.rand(400, 4000, generator=generator) - 0.5) * 1e-4
    rows = [row(PLAIN, position) for position in range(400)]
    assert sample(logits, rows) == sample(other, rows)


# Filters.


def test_top_k() -> None:
    logits = [1.0, 1.2, 0.9, 1.1]
    assert drawn(logits, replace(PLAIN, top_k=1)) == {1}
    assert drawn(logits, replace(PLAIN, top_k=2)) == {1, 3}
    assert drawn(logits, replace(PLAIN, top_k=4)) == {0, 1, 2, 3}
    assert drawn(logits, replace(PLAIN, top_k=1000)) == {0, 1, 2, 3}


def test_top_k_keeps_equals_of_the_last_one() -> None:
    assert drawn([1.0, 1.2, 1.0, 0.5], replace(PLAIN, top_k=2)) == {0, 1, 2}


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.0, 1), (1e-9, 1), (0.25, 1), (0.2500001, 2), (0.5, 2), (0.75, 3), (1, 4)]
)
def test_top_p_keeps_the_smallest_set_and_the_first_of_equals(top_p: float, kept: int) -> None:
    assert drawn([2.0] * 4, replace(PLAIN, top_p=top_p)) == set(range(kept))


def test_top_p_takes_the_likely_tokens_first() -> None:
    logits = [math.log(p) for p in (0.1, 0.2, 0.4, 0.3)]
    assert drawn(logits, replace(PLAIN, top_p=0.65)) == {2, 3}
    assert drawn(logits, replace(PLAIN, top_p=0.75)) == {1, 2, 3}


def test_top_p_of_a_flat_row_keeps_more_than_any_guess() -> None:
    vocab, num = 10_000, 300
    params = replace(PLAIN, top_p=0.9)
    tokens = sample(torch.zeros(num, vocab), [row(params, position) for position in range(num)])
    assert max(tokens) < 9_000
    assert max(tokens) > 8_500
    assert min(tokens) < 500


def test_min_p_is_relative_to_the_largest_probability() -> None:
    logits = [math.log(p) for p in (0.5, 0.26, 0.2, 0.04)]
    assert drawn(logits, replace(PLAIN, min_p=0.5)) == {0, 1}
    assert drawn(logits, replace(PLAIN, min_p=0.3)) == {0, 1, 2}
    assert drawn(logits, replace(PLAIN, min_p=1.0)) == {0}


def test_top_p_counts_what_min_p_and_top_k_left() -> None:
    logits = [math.log(p) for p in (0.4, 0.2, 0.2, 0.2)]
    assert drawn(logits, replace(PLAIN, top_p=0.5)) == {0, 1}
    assert drawn(logits, replace(PLAIN, top_p=0.5, min_p=0.9)) == {0}
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    assert drawn(logits, replace(PLAIN, top_p=0.5, top_k=2)) == {0}


@pytest.mark.parametrize("temperature", [1e-6, 1e-300])
def test_a_tiny_temperature_is_all_but_greedy(temperature: float) -> None:
    assert drawn([1.0, 1.01, 0.0, -INF], replace(PLAIN, temperature=temperature)) == {1}


def test_a_high_temperature_is_all_but_uniform() -> None:
    params = replace(PLAIN, temperature=100.0)
    assert drawn([1.0, 0.0, 2.0, -INF], params, num=400) == {0, 1, 2}


def test_large_logits_do_not_overflow() -> None:
    assert drawn([3e38, -3e38, 0.0], replace(PLAIN, temperature=1e-3)) == {0}


# On a grid, so that two logits are equal or far enough apart to be told apart by their weights.
logit = st.one_of(
    st.integers(-12_000, 12_000).map(lambda n: n / 1024), st.sampled_from([0.0, 1.0, -INF])
)
parameters = st.builds(
    SamplingParams,
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.0, 1e-6, 0.3, 1.0, 2.5, 100.0]),
    top_p=st.one_of(st.just(1.0), st.floats(0, 1)),
    top_k=st.one_of(st.none(), st.integers(1, 40)),
    min_p=st.one_of(st.just(0.0), st.floats(0, 1)),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(logit, min_size=1, max_size=30), parameters)
def test_equals_a_plain_reference(logits: list[float], params: SamplingParams) -> None:
    assume(max(logits) > -INF)
    rows = [SampleRow(params, choice, position) for choice in range(2) for position in range(8)]
    expected = [reference(logits, r) for r in rows]
    assume(None not in expected)
    assert sample(torch.tensor([logits] * len(rows)), rows) == expected


def reference(logits: list[float], r: SampleRow) -> int | None:
    """The same token by sorting and adding floats; None where rounding would decide."""
    params = r.params
    if params.temperature == 0:
        return logits.index(max(logits))
    scaled = [logit / params.temperature for logit in logits]
    ratios = [math.exp(logit - max(scaled)) for logit in scaled]
    if params.min_p > 0 and any(0 < abs(ratio - params.min_p) < 1e-9 for ratio in ratios):
        return None
    keep = [i for i, ratio in enumerate(ratios) if ratio >= params.min_p]
    if params.top_k is not None and params.top_k < len(keep):
        least = sorted((logits[i] for i in keep), reverse=True)[params.top_k - 1]
        keep = [i for i in keep if logits[i] >= least]
    if params.top_p < 1:
        by_rank = sorted(keep, key=lambda i: (-logits[i], i))
        wanted = params.top_p * math.fsum(ratios[i] for i in keep)
        sums = list(accumulate(ratios[i] for i in by_rank))
        if any(abs(have - wanted) < 1e-9 for have in sums):
            return None
        keep = sorted(by_rank[: 1 + sum(have < wanted for have in sums)])
    draws = plain_noise(params.seed, r.choice, r.position, len(logits))
    times = {i: -math.log((draws[i] + 0.5) / 2**52) / ratios[i] for i in keep if ratios[i] > 1e-12}
    first, *later = sorted(times, key=times.__getitem__)
    if later and times[later[0]] < times[first] * (1 + 1e-9):
        return None
    return first


# A row's token depends on nothing but the row.


def mixed_batch() -> tuple[Tensor, list[SampleRow]]:
    choose = random.Random(5)
    rows = [
        SampleRow(
            SamplingParams(
                seed=choose.randrange(2**64),
                temperature=choose.choice([0.0, 0.5, 1.0, 1.5]),
                top_p=choose.choice([1.0, 0.9, 0.3]),
                top_k=choose.choice([None, 1, 7, 500]),
                min_p=choose.choice([0.0, 0.05]),
            ),
            choice=choose.randrange(4),
            position=choose.randrange(4000),
            banned_token_ids=choose.choice([(), (3, 4)]),
        )
        for _ in range(40)
    ]
    logits = torch.randn(40, 3001, generator=torch.Generator().manual_seed(5)) * 4
    return (logits * 4).round() / 4, rows  # coarse, so that many are equal


def test_alone_in_a_batch_and_permuted_are_the_same() -> None:
    logits, rows = mixed_batch()
    together = sample(logits, rows)
    assert [sample(logits[i : i + 1], [r])[0] for i, r in enumerate(rows)] == together
    order = random.Random(6).sample(range(40), 40)
    assert sample(logits[order], [rows[i] for i in order]) == [together[i] for i in order]


def test_what_the_other_rows_want_makes_no_difference() -> None:
    logits, rows = mixed_batch()
    r = row(replace(PLAIN, top_p=0.95, top_k=50))
    alone = sample(logits[:1], [r])
    for other in rows:
        assert sample(logits[:2], [r, other])[:1] == alone
