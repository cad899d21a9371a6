"""One request, as a value, once the router has turned HTTP and text into token ids.

It travels unchanged to both nodes. Everything that a sampled token depends on is here: the noise of
a token is a pure function of (seed, choice index, position), so a sequence can be computed, or
continued, anywhere with the same result.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

RequestId = NewType("RequestId", str)
TransferId = NewType("TransferId", str)


class FinishReason(StrEnum):
    STOP = "stop"  # end-of-text token, stop token, or stop string
    LENGTH = "length"  # max_tokens or the model's context is used up


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """``temperature`` 0 is greedy. ``top_k`` None, ``top_p`` 1 and ``min_p`` 0 filter nothing."""

    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """``max_tokens`` counts generated tokens per choice and is already clipped to the context.

    ``stop_token_ids`` end a choice with STOP (end-of-text tokens unless ``ignore_eos``); they are
    masked out until ``min_tokens`` tokens have been generated. ``cache_salt`` keeps prefix caches
    apart: equal prompts share pages only under an equal salt.
    """

    request_id: RequestId
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    min_tokens: int = 0
    num_choices: int = 1
    stop_token_ids: tuple[int, ...] = ()
    cache_salt: str = ""
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """New tokens of one choice. ``finish_reason`` comes with the last one.

    A stop token is counted in usage but never part of ``token_ids``: text ends before it.
    """

    choice: int
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
