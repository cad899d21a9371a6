"""Logits become tokens, row by row, with different parameters in one batch.

A row's token is a pure function of its logits and its ``SampleRow``: no generator state. Order of
work: banned tokens, temperature, ``min_p``, ``top_k``, ``top_p``, then an exponential race: token v
arrives at e_v / weight_v, with e_v exponential noise of (seed, choice, position, v) alone, and the
first one wins, with probability weight_v / sum. Logits of another batch shape differ in their last
bits; that shifts arrivals as little, so the winner stays (the inverse of a cumulative sum would
amplify it). Weights are integers (2^44 times the ratio to the largest, rounded): their sums are
exact, and a token without weight cannot win. A row of logits that are no numbers gets an error,
never a token; it harms no other row.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from pdcore.errors import InternalError
from pdcore.generation import SamplingParams

PEAK_WEIGHT = 2**44  # of a row's most likely token; 2^18 tokens of it still sum within int64
MAX_VOCAB = 2**18

NOISE_BITS = 52  # so that n + 1/2 is exact in a double, and never rounds up to 2^52


def _signed(word: int) -> int:
    """An unsigned 64-bit word as torch's int64 has it."""
    word %= 2**64
    return word - 2**64 if word >= 2**63 else word


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST_FACTOR = _signed(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = _signed(0x94D049BB133111EB)

# Most top_p rows keep few tokens: try to find them among so many before all are sorted.
_NUCLEUS_GUESSES = (256, 4096)


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One row of logits to sample from. ``position`` is the index that the token will have."""

    params: SamplingParams
    choice: int
    position: int
    banned_token_ids: tuple[int, ...] = ()


def sample(logits: Tensor, rows: Sequence[SampleRow]) -> list[int | InternalError]:
    """One token for each row of ``logits`` [rows, vocab] (float32), which stay as they are.

    Greedy rows take the largest logit, the first one of equals. A row with NaN, +inf, or nothing
    but -inf has an InternalError in its place.
    """
    logits = _without_banned(logits, rows)
    peaks, best = logits.max(dim=-1)
    tokens: list[int | InternalError] = best.tolist()
    for i, error in _broken(peaks, rows):
        tokens[i] = error
    drawn = [
        i
        for i, (row, token) in enumerate(zip(rows, tokens, strict=True))
        if isinstance(token, int) and not row.params.is_greedy
    ]
    if drawn:
        if len(drawn) < len(rows):
            logits, peaks = logits[drawn], peaks[drawn]
        for i, token in zip(drawn, _draw(logits, peaks, [rows[i] for i in drawn]), strict=True):
            tokens[i] = token
    return tokens


def noise(seed: int, choice: int, position: int, num_tokens: int) -> Tensor:
    """Uniform integers of 52 bits, int64 [num_tokens], one for each token of the vocabulary.

    A counter hash: each of the three words is absorbed by one round of splitmix64 (Steele, Lea,
    Flood 2014; constants of Vigna's public-domain code), then the generator runs from that state,
    a step a token. One round is a permutation of 64-bit words; int64 products wrap.
    """
    state = torch.zeros(1, dtype=torch.int64)
    for word in (seed, choice, position):
        state = _mixed((state ^ _signed(word)).add_(_GOLDEN))
    steps = torch.arange(1, num_tokens + 1).mul_(_GOLDEN)
    return _shifted(_mixed(steps.add_(state)), 64 - NOISE_BITS)


def _mixed(words: Tensor) -> Tensor:
    words = words.bitwise_xor_(_shifted(words, 30)).mul_(_FIRST_FACTOR)
    words = words.bitwise_xor_(_shifted(words, 27)).mul_(_SECOND_FACTOR)
    return words.bitwise_xor_(_shifted(words, 31))


def _shifted(words: Tensor, num_bits: int) -> Tensor:
    """A right shift of unsigned words."""
    return (words >> num_bits).bitwise_and_((1 << (64 - num_bits)) - 1)


def _without_banned(logits: Tensor, rows: Sequence[SampleRow]) -> Tensor:
    # An end-of-text id beyond the vocabulary cannot be sampled anyway.
    vocab = logits.shape[-1]
    cells = [(i, t) for i, row in enumerate(rows) for t in row.banned_token_ids if t < vocab]
    if not cells:
        return logits
    at_rows, at_tokens = torch.tensor(cells, device=logits.device).unbind(dim=1)
    logits = logits.clone()
    logits[at_rows, at_tokens] = -math.inf
    return logits


def _broken(peaks: Tensor, rows: Sequence[SampleRow]) -> Iterator[tuple[int, InternalError]]:
    # The maximum carries every defect: NaN stays NaN, +inf wins, -inf is all there was.
    for i, (row, peak) in enumerate(zip(rows, peaks.tolist(), strict=True)):
        if not math.isfinite(peak):
            message = f"no token can be sampled at position {row.position}"
            yield i, InternalError(f"{message}: the largest logit is {peak}")


def _draw(logits: Tensor, peaks: Tensor, rows: Sequence[SampleRow]) -> list[int]:
    assert logits.shape[-1] <= MAX_VOCAB
    weights = _weights(logits, peaks, rows)
    _keep_top_k(weights, logits, rows)
    _keep_top_p(weights, rows)
    return [_winner(weight, row) for weight, row in zip(weights, rows, strict=True)]


def _winner(weights: Tensor, row: SampleRow) -> int:
    """The first arrival of the race; ``weights`` [vocab] of one row, at least one above zero."""
    drawn = noise(row.params.seed, row.choice, row.position, len(weights))
    # (n + 1/2) / 2^52 lies in (0, 1), so a time is above zero, and infinite without weight.
    times = drawn.double().add_(0.5).mul_(2.0**-NOISE_BITS).log_().neg_().to(weights.device)
    return int(times.div_(weights).argmin())


def _weights(logits: Tensor, peaks: Tensor, rows: Sequence[SampleRow]) -> Tensor:
    """int64 [rows, vocab]: temperature and ``min_p`` applied, PEAK_WEIGHT at the largest logit."""
    ratios = logits.double()
    ratios -= peaks.double().unsqueeze(1)
    ratios /= _column(rows, lambda params: params.temperature, logits.device)
    ratios.exp_()
    if any(row.params.min_p > 0 for row in rows):
        ratios[ratios < _column(rows, lambda params: params.min_p, logits.device)] = 0
    return ratios.mul_(PEAK_WEIGHT).round_().long()


def _keep_top_k(weights: Tensor, logits: Tensor, rows: Sequence[SampleRow]) -> None:
    """Zero what lies below the k-th largest logit; equals of the k-th stay, as elsewhere."""
    vocab = logits.shape[-1]
    limits = {i: k for i, row in enumerate(rows) if (k := row.params.top_k or vocab) < vocab}
    if not limits:
        return
    at = list(limits)
    largest = logits[at].topk(max(limits.values()), dim=-1).values
    border = torch.full_like(logits[:, :1], -math.inf)
    border[at] = largest.gather(1, _as_column([k - 1 for k in limits.values()], logits.device))
    weights.masked_fill_(logits < border, 0)


def _keep_top_p(weights: Tensor, rows: Sequence[SampleRow]) -> None:
    """Zero all but the smallest set whose share reaches ``top_p``; of equals the first stay.

    At least one token stays. Tokens are equal here when their weights are: to within 2^-44.
    """
    at = [i for i, row in enumerate(rows) if row.params.top_p < 1]
    if not at:
        return
    chosen = weights[at]
    needed = [
        max(1, math.ceil(Fraction(rows[i].params.top_p) * total))
        for i, total in zip(at, chosen.sum(dim=-1).tolist(), strict=True)
    ]
    border = torch.zeros_like(weights[:, :1])
    num_equal = torch.zeros_like(border)
    border[at], num_equal[at] = _nucleus(chosen, needed)
    equal = weights == border
    late = equal.cumsum(dim=-1, dtype=torch.int32) > num_equal
    weights.masked_fill_((weights < border) | (equal & late), 0)


def _nucleus(weights: Tensor, needed: list[int]) -> tuple[Tensor, Tensor]:
    """(the smallest weight kept, how many equals of it), each [rows, 1], to reach ``needed``."""
    vocab = weights.shape[-1]
    for k in (*(guess for guess in _NUCLEUS_GUESSES if guess < vocab), vocab):
        largest = weights.topk(k, dim=-1).values
        cumulative = largest.cumsum(dim=-1)
        reached = cumulative[:, -1].tolist()
        if all(have >= need for have, need in zip(reached, needed, strict=True)):
            break
    column = _as_column(needed, weights.device)
    border = largest.gather(1, torch.searchsorted(cumulative, column))
    missing = column - (largest * (largest > border)).sum(dim=-1, keepdim=True)
    return border, (missing + border - 1) // border


def _as_column(numbers: list[int], device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64, device=device).unsqueeze(1)


def _column(
    rows: Sequence[SampleRow], value: Callable[[SamplingParams], float], device: torch.device
) -> Tensor:
    numbers = [value(row.params) for row in rows]
    return torch.tensor(numbers, dtype=torch.float64, device=device).unsqueeze(1)
