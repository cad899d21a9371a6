"""The choices of one request while they are generated, and the way their tokens leave.

A group starts with one member that stands for the prompt (when this node prefills) or with one per
choice (when pages and first tokens arrived). The loop puts deltas in; ``Generate`` takes them out.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from time import monotonic

from pdcore.errors import PdspanError
from pdcore.generation import FinishReason, GenerationRequest, TokenDelta
from pdengine.page_pool import Promise
from pdengine.sequence import Sequence

Deltas = tuple[TokenDelta, ...]


class Group:
    """Output of one request. All methods run on the event loop's thread.

    ``growth``: what its choices draw pages from before they take any that others may have, too.
    """

    def __init__(self, request: GenerationRequest) -> None:
        self.request = request
        self.growth: Promise | None = None
        self.cached_tokens = 0
        self.num_generated = 0
        self.prefill_s: float | None = None  # when a prompt that is prefilled here joined
        self.first_token_s: float | None = None
        self.first_step_s: float | None = None
        self._finished: set[int] = set()
        self._events: asyncio.Queue[Deltas | PdspanError] = asyncio.Queue()

    @property
    def is_finished(self) -> bool:
        return len(self._finished) == self.request.num_choices

    def has_finished(self, choice: int) -> bool:
        return choice in self._finished

    def emit(self, deltas: Deltas) -> None:
        now = monotonic()
        if self.first_token_s is None:
            self.first_token_s = now
        elif self.first_step_s is None:
            self.first_step_s = now
        self._finished |= {delta.choice for delta in deltas if delta.finish_reason}
        self._events.put_nowait(deltas)

    def fail(self, error: PdspanError) -> None:
        self._events.put_nowait(error)

    async def deltas(self) -> AsyncIterator[Deltas]:
        """What was emitted, until every choice has finished; raises what ``fail`` was given."""
        open_choices = self.request.num_choices
        while open_choices:
            event = await self._events.get()
            if isinstance(event, PdspanError):
                raise event
            open_choices -= sum(delta.finish_reason is not None for delta in event)
            yield event


@dataclass(slots=True, eq=False)
class Member:
    """A sequence of a group in the loop. ``choices`` are what its next sampled tokens are for."""

    group: Group
    sequence: Sequence
    choices: tuple[int, ...]
    order: int  # by arrival; the highest is the youngest
    last_token_s: float = field(default_factory=monotonic)

    @property
    def is_decoding(self) -> bool:
        return self.sequence.num_remaining == 1

    def take(self, choice: int, token: int) -> TokenDelta:
        """Append the sampled token and say what the client gets of it."""
        reason = self.sequence.append(token)
        self.group.num_generated += 1
        visible = () if reason is FinishReason.STOP else (token,)
        return TokenDelta(choice, visible, reason)
