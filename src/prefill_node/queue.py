"""Prompts that wait for pages, first come, first served, and what one of them is while computed.

A job takes the pages of its whole prompt at once or none: nobody holds some and waits for more. The
head of the queue waits until it fits, so a long prompt cannot starve behind short ones.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from time import monotonic

from pdcore.errors import NoCapacity, PdspanError, PromptTooLong
from pdcore.generation import GenerationRequest
from pdcore.kv_layout import KvLayout
from pdengine.page_pool import PagePool
from pdengine.prefix_cache import PrefixCache
from pdengine.sequence import Sequence
from prefill_node.chunks import Route


class Job:
    """One prompt, from the queue to its first tokens. ``Run`` follows it with ``progress()``."""

    def __init__(self, request: GenerationRequest, route: Route | None = None) -> None:
        self.request = request
        self.route = route  # where its pages go while it is computed; None: they go later
        self.sequence: Sequence | None = None  # once it has pages
        self.cached_tokens = 0
        self.first_tokens: tuple[int, ...] = ()
        self.queued_s = monotonic()
        self.started_s: float | None = None
        self.finished_s: float | None = None
        self._error: PdspanError | None = None
        self._changed = asyncio.Event()

    @property
    def admitted(self) -> Sequence:
        assert self.sequence is not None, "the job has its pages"
        return self.sequence

    def notify(self) -> None:
        """Its ``Run`` has something to see: it started, more KV is final, or it is done."""
        self._changed.set()

    def fail(self, error: PdspanError) -> None:
        self._error = error
        self.notify()

    async def progress(self) -> AsyncIterator[int]:
        """Tokens whose KV is final, each time that they are more; the last number is all of them.

        The first number comes with admission, and counts what the prefix cache held. Raises what
        the job failed with.
        """
        finished = False
        while not finished:
            await self._changed.wait()
            self._changed.clear()
            if self._error is not None:
                raise self._error
            finished = bool(self.first_tokens)
            if self.sequence is not None:
                yield self.sequence.num_computed


class PrefillQueue:
    """Bounded; ``admit`` moves jobs out of it, in order, as long as their pages can be had."""

    def __init__(
        self, pool: PagePool, prefix: PrefixCache, layout: KvLayout, max_queued: int
    ) -> None:
        self._pool = pool
        self._prefix = prefix
        self._layout = layout
        self._max_queued = max_queued
        self._waiting: deque[Job] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, job: Job) -> None:
        """Raises PromptTooLong for what can never fit, NoCapacity when the queue is full."""
        num_prompt = len(job.request.prompt_token_ids)
        wanted, total = self._layout.num_pages(num_prompt), self._pool.num_pages
        if wanted > total:
            raise PromptTooLong(
                f"the prompt's {num_prompt} tokens need {wanted} KV pages; the prefill node has"
                f" {total}"
            )
        if len(self._waiting) >= self._max_queued:
            raise NoCapacity(f"{self._max_queued} prompts wait for prefill already")
        self._waiting.append(job)

    def discard(self, job: Job) -> None:
        if job in self._waiting:
            self._waiting.remove(job)

    def admit(self) -> list[Job]:
        """The jobs that got their pages now."""
        admitted = []
        while self._waiting and self._take_pages(self._waiting[0]):
            admitted.append(self._waiting.popleft())
        return admitted

    def _take_pages(self, job: Job) -> bool:
        request = job.request
        cached = self._prefix.match(request.prompt_token_ids, request.cache_salt)
        wanted = self._layout.num_pages(len(request.prompt_token_ids)) - len(cached)
        fresh = self._pool.take(wanted)
        if fresh is None:
            self._pool.release(cached)
            return False
        job.cached_tokens = len(cached) * self._layout.page_tokens
        job.sequence = Sequence(request, 0, cached + fresh, job.cached_tokens)
        return True
