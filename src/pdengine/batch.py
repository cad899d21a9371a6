"""Slices of sequences, and the flat tensors of one step that they add up to.

A ``Slice`` is the caller's plan for one sequence in one step; decode and prefill differ only in its
number of tokens. A ``StepBatch`` is what the model and an attention backend see: no sequence, no
request, only numbers. Building it changes nothing.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from pdengine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Slice:
    """Compute the next ``num_tokens`` tokens of ``sequence`` that are not computed yet.

    When they reach the end of its ``token_ids``, one token is sampled for each of ``choices`` from
    the last row of logits; before that, none.
    """

    sequence: Sequence
    num_tokens: int
    choices: tuple[int, ...]

    @property
    def reaches_end(self) -> bool:
        return self.num_tokens == self.sequence.num_remaining


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The tokens of all slices, one after the other.

    Slice i owns ``query_lengths[i]`` rows; its context, ``context_lengths[i]`` tokens with these
    rows last, lies in ``page_tables[i]``. int64 tensors: ``token_ids``, ``positions`` and ``slots``
    (page * page_tokens + offset in the page), each [num_tokens].
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    query_lengths: tuple[int, ...]
    context_lengths: tuple[int, ...]
    page_tables: tuple[tuple[int, ...], ...]
    page_tokens: int

    @classmethod
    def of(cls, slices: SequenceOf[Slice], page_tokens: int, device: torch.device) -> Self:
        """Every slice must have at least one token, and its sequence the pages for them."""
        assert slices, "a step has at least one slice"
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        for piece in slices:
            sequence = piece.sequence
            start, end = sequence.num_computed, sequence.num_computed + piece.num_tokens
            assert start < end <= sequence.num_tokens, "a slice holds tokens still to be computed"
            assert end <= len(sequence.pages) * page_tokens, "a slice has pages for its tokens"
            token_ids += sequence.token_ids[start:end]
            positions += range(start, end)
            slots += _slots(sequence.pages, start, end, page_tokens)
        return cls(
            token_ids=torch.tensor(token_ids, device=device),
            positions=torch.tensor(positions, device=device),
            slots=torch.tensor(slots, device=device),
            query_lengths=tuple(piece.num_tokens for piece in slices),
            context_lengths=tuple(
                piece.sequence.num_computed + piece.num_tokens for piece in slices
            ),
            page_tables=tuple(
                tuple(piece.sequence.pages[: _num_pages(piece, page_tokens)]) for piece in slices
            ),
            page_tokens=page_tokens,
        )

    @property
    def device(self) -> torch.device:
        return self.token_ids.device

    @property
    def only_decode(self) -> bool:
        """Each slice is one token: the shape that decode kernels are made for."""
        return all(length == 1 for length in self.query_lengths)

    def context_slots(self, index: int) -> Tensor:
        """The slots of slice ``index``'s whole context, int64 [context length], on the CPU."""
        pages = torch.tensor(self.page_tables[index])
        slots = pages[:, None] * self.page_tokens + torch.arange(self.page_tokens)
        return slots.flatten()[: self.context_lengths[index]]


def _slots(pages: list[int], start: int, end: int, page_tokens: int) -> list[int]:
    return [pages[t // page_tokens] * page_tokens + t % page_tokens for t in range(start, end)]


def _num_pages(piece: Slice, page_tokens: int) -> int:
    return -(-(piece.sequence.num_computed + piece.num_tokens) // page_tokens)
