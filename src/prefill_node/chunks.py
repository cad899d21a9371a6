"""How many tokens of a prompt the next step computes: all that fit, but the end is tapered.

While pages leave during prefill, what is left to send when prefill ends is the last chunk. Cutting
it in two pays where sending the first part, which then happens beside the second, takes longer than
one more step costs. Pure: what is known of the link and of past steps is an argument.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

MIN_SHARE = 8  # no part is smaller than this share of a full step: small steps waste compute
FIRST_GUESS = 1 / 16  # of a full step's time, for what a step costs beside its tokens
ENOUGH_SAMPLES = 3
MEMORY_STEPS = 64
CLEARLY_SMALLER = 0.75


class Route(Protocol):
    """Where a prompt's pages go while it is computed."""

    @property
    def rate_bytes_per_s(self) -> float | None:
        """None while it is not known."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step of n tokens takes about ``step_s`` + n * ``token_s``."""

    step_s: float
    token_s: float


@dataclass(frozen=True, slots=True)
class Taper:
    """``send_token_s``: how long the link takes for one token's KV."""

    send_token_s: float
    time: StepTime
    page_tokens: int
    min_tokens: int

    def cut(self, start: int, end: int) -> int:
        """Where the first part of [start, end), the last tokens of a prompt, is to end; ``end`` if
        cutting does not pay. A part ends with a page, since only whole pages leave.

        Sending the first part takes as long as computing the second.
        """
        time = self.time
        beside_s = (end - start) * self.send_token_s - time.step_s
        rest = max(self.min_tokens, beside_s / (self.send_token_s + time.token_s))
        middle = int(end - rest) // self.page_tokens * self.page_tokens
        first = middle - start
        pays = first >= self.min_tokens and first * self.send_token_s > time.step_s
        return middle if pays else end


def next_chunk(start: int, end: int, budget: int, taper: Taper | None) -> int:
    """How many of a prompt's tokens [start, end) the next step computes, at most ``budget``."""
    if end - start > budget or taper is None:
        return min(end - start, budget)
    return taper.cut(start, end) - start


class StepTimes:
    """Learns ``StepTime`` from steps that computed one prompt alone.

    Two chunks of one prompt, one after the other, may differ in size but hardly in context: the
    line through both gives the fixed part. What disturbs a step makes it longer, so the least of
    the lately seen counts; and as long as these are few, the low ``FIRST_GUESS``, so that ends are
    cut now and then to find out.
    """

    def __init__(self, step_tokens: int) -> None:
        self._step_tokens = step_tokens
        self._num_steps = 0
        self._fixed: deque[tuple[int, float]] = deque()  # (number of the step, seconds)
        self._last: tuple[int, float] | None = None

    def on_step(self, num_tokens: int, seconds: float, *, same_prompt: bool) -> None:
        """``same_prompt``: as in the step before this one."""
        self._num_steps += 1
        while self._fixed and self._fixed[0][0] <= self._num_steps - MEMORY_STEPS:
            self._fixed.popleft()
        if self._last is not None and same_prompt:
            self._compare(*self._last, num_tokens, seconds)
        self._last = num_tokens, seconds

    def estimate(self) -> StepTime | None:
        """None before the first step."""
        if self._last is None:
            return None
        num_tokens, seconds = self._last
        fixed_s = [fixed_s for _, fixed_s in self._fixed]
        if len(fixed_s) < ENOUGH_SAMPLES:
            full_s = seconds / num_tokens * self._step_tokens
            fixed_s.append(min(seconds, FIRST_GUESS * full_s))
        step_s = min(fixed_s)
        return StepTime(step_s, max(0.0, seconds - step_s) / num_tokens)

    def _compare(self, larger: int, larger_s: float, smaller: int, smaller_s: float) -> None:
        if smaller <= CLEARLY_SMALLER * larger:
            fixed_s = (smaller_s * larger - larger_s * smaller) / (larger - smaller)
            self._fixed.append((self._num_steps, max(0.0, fixed_s)))
