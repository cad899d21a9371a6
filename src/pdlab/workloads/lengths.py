"""Workloads that are distributions of prompt lengths, over prompts of random tokens.

``distinct_prompts`` lets requests repeat each other's prompts in turn: with ``prime`` in the
scenario the prefill node has them cached, and what is left to measure is the transfer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated

from pdcore.typed_table import Within
from pdlab.workloads.request import WorkRequest, random_tokens

Count = Annotated[int, Within(1)]
Share = Annotated[float, Within(0, 1)]


@dataclass(frozen=True, slots=True)
class AtLeastOne:
    def problem(self, values: Sequence[object]) -> str | None:
        return None if values else "it must have at least one entry"


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every prompt has the same length."""

    prompt_tokens: Count
    output_tokens: Count
    num_requests: Count = 1
    distinct_prompts: Count | None = None  # None: all of them

    def requests(self, vocabulary: Sequence[int], seed: str) -> list[WorkRequest]:
        num_prompts = min(self.distinct_prompts or self.num_requests, self.num_requests)
        prompts = _prompts(vocabulary, seed, num_prompts, lambda random, i: self.prompt_tokens)
        return [
            WorkRequest(prompts[i % num_prompts], self.output_tokens)
            for i in range(self.num_requests)
        ]


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every length from ``min_tokens`` to ``max_tokens`` is equally likely."""

    min_tokens: Count
    max_tokens: Count
    output_tokens: Count
    num_requests: Count = 1

    def requests(self, vocabulary: Sequence[int], seed: str) -> list[WorkRequest]:
        low, high = sorted((self.min_tokens, self.max_tokens))
        prompts = _prompts(
            vocabulary, seed, self.num_requests, lambda random, i: random.randint(low, high)
        )
        return [WorkRequest(prompt, self.output_tokens) for prompt in prompts]


@dataclass(frozen=True, slots=True)
class Bimodal:
    """Short prompts, and a share of long ones, each with a probability of its own."""

    short_tokens: Count
    long_tokens: Count
    long_share: Share
    output_tokens: Count
    num_requests: Count = 1

    def requests(self, vocabulary: Sequence[int], seed: str) -> list[WorkRequest]:
        def length(random: Random, i: int) -> int:
            return self.long_tokens if random.random() < self.long_share else self.short_tokens

        prompts = _prompts(vocabulary, seed, self.num_requests, length)
        return [WorkRequest(prompt, self.output_tokens) for prompt in prompts]


@dataclass(frozen=True, slots=True)
class Zipf:
    """A length L from ``min_tokens`` to ``max_tokens`` has a probability in proportion to
    (L / ``min_tokens``) ** -``exponent``: most are short, few are very long."""

    min_tokens: Count
    max_tokens: Count
    exponent: Annotated[float, Within(0)]
    output_tokens: Count
    num_requests: Count = 1

    def requests(self, vocabulary: Sequence[int], seed: str) -> list[WorkRequest]:
        low, high = sorted((self.min_tokens, self.max_tokens))
        lengths = range(low, high + 1)
        weights = [(length / low) ** -self.exponent for length in lengths]
        prompts = _prompts(
            vocabulary,
            seed,
            self.num_requests,
            lambda random, i: random.choices(lengths, weights)[0],
        )
        return [WorkRequest(prompt, self.output_tokens) for prompt in prompts]


@dataclass(frozen=True, slots=True)
class Bucketed:
    """Each of ``buckets`` in turn, so that every length is met equally often."""

    buckets: Annotated[tuple[Count, ...], AtLeastOne()]
    output_tokens: Count
    num_requests: Count = 1

    def requests(self, vocabulary: Sequence[int], seed: str) -> list[WorkRequest]:
        buckets = self.buckets
        prompts = _prompts(
            vocabulary, seed, self.num_requests, lambda random, i: buckets[i % len(buckets)]
        )
        return [WorkRequest(prompt, self.output_tokens) for prompt in prompts]


def _prompts(
    vocabulary: Sequence[int], seed: str, count: int, length: Callable[[Random, int], int]
) -> list[tuple[int, ...]]:
    """Lengths come from a generator of their own: they do not change with the vocabulary."""
    lengths, tokens = Random(f"{seed}/lengths"), Random(f"{seed}/tokens")
    return [random_tokens(vocabulary, length(lengths, i), tokens) for i in range(count)]
