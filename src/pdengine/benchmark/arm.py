"""What is timed: one prompt's prefill, decode steps of a batch, and reading memory, their floor.

Prompts are random tokens, sampling is greedy. A decode batch is prefilled first, untimed; its
contexts grow by one token in each timed step, as they do in service.
"""

import random
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch

from pdcore.errors import ConfigError
from pdcore.generation import GenerationRequest, RequestId, SamplingParams
from pdengine.batch import Slice
from pdengine.engine import Engine, Sampled
from pdengine.sequence import Sequence

GREEDY = SamplingParams(seed=0, temperature=0.0)
READ_BYTES = 512 * 2**20  # more than any cache holds


@dataclass(frozen=True, slots=True)
class Timed:
    """``tokens`` that were computed in ``seconds``, or bytes that were read."""

    tokens: int
    seconds: float


class EngineArm:
    """``chunk_tokens``: most tokens of a prompt that one step computes."""

    def __init__(self, engine: Engine, *, chunk_tokens: int, seed: int = 0) -> None:
        self._engine = engine
        self._chunk_tokens = chunk_tokens
        self._random = random.Random(seed)

    def prefill(self, num_tokens: int) -> Timed:
        """Of one prompt, until its first token is sampled."""
        with self._sequences(1, num_tokens, num_tokens) as sequences:
            started = perf_counter()
            self._compute(sequences[0])
            return Timed(num_tokens, perf_counter() - started)

    def decode(self, batch: int, context: int, steps: int) -> Timed:
        """``batch`` sequences, each with ``context`` tokens at the first of ``steps`` steps."""
        with self._sequences(batch, context - 1, context + steps) as sequences:
            for sequence in sequences:
                self._compute(sequence)
            started = perf_counter()
            for _ in range(steps):
                self._advance(sequences, [1] * batch)
            return Timed(batch * steps, perf_counter() - started)

    def read(self) -> Timed:
        """Bytes of memory, once through, by all threads."""
        words = torch.ones(READ_BYTES // 8, dtype=torch.int64)
        words.sum()
        started = perf_counter()
        words.sum()
        return Timed(READ_BYTES, perf_counter() - started)

    @contextmanager
    def _sequences(self, num: int, num_tokens: int, most_tokens: int) -> Iterator[list[Sequence]]:
        """New ones, not computed, with pages for ``most_tokens`` each."""
        vocabulary, pool = range(self._engine.config.vocab_size), self._engine.pool
        pages_each = self._engine.layout.num_pages(most_tokens)
        if num * pages_each > pool.num_available:
            raise ConfigError("the KV pool is too small for this batch: raise --kv-bytes")
        sequences = []
        for _ in range(num):
            prompt = tuple(self._random.choices(vocabulary, k=num_tokens))
            request = GenerationRequest(RequestId("benchmark"), prompt, GREEDY, most_tokens)
            sequences.append(Sequence(request, 0, pool.take(pages_each) or ()))
        try:
            yield sequences
        finally:
            for sequence in sequences:
                pool.release(sequence.give_up_pages())

    def _compute(self, sequence: Sequence) -> None:
        while (num_left := sequence.num_remaining) > 0 and sequence.num_generated == 0:
            self._advance([sequence], [min(num_left, self._chunk_tokens)])

    def _advance(self, sequences: SequenceOf[Sequence], num_tokens: SequenceOf[int]) -> None:
        slices = [
            Slice(sequence, num, (0,)) for sequence, num in zip(sequences, num_tokens, strict=True)
        ]
        for piece, sampled in zip(slices, self._engine.run(slices), strict=True):
            piece.sequence.num_computed += piece.num_tokens
            for token in _tokens(sampled):
                piece.sequence.append(token)


def _tokens(sampled: Sampled) -> tuple[int, ...]:
    if isinstance(sampled, tuple):
        return sampled
    raise sampled
