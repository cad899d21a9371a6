"""Room for a request, from promise to pages.

``Generate`` promises pages for the prompt, one more token, and the growth to expect soon; without
room it refuses at once. The opening frame of the transfer redeems the promise: it cannot fail for
lack of pages. Whatever was not committed goes back with ``give_back``, which may be called twice.
"""

from collections.abc import Sequence as ListOf
from enum import Enum, auto

from pdcore.errors import NoCapacity, PromptTooLong
from pdcore.generation import GenerationRequest
from pdcore.kv_layout import KvLayout
from pdengine.page_pool import PagePool, Promise
from pdengine.prefix_cache import PrefixCache


class _State(Enum):
    PROMISED = auto()
    RESERVED = auto()
    SETTLED = auto()  # committed, or given back


class Reservation:
    """One request's room. Satisfies kvtransfer's ``TransferTarget``."""

    def __init__(self, pool: PagePool, prompt: Promise, growth: Promise, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self._pool = pool
        self._prompt = prompt
        self._growth = growth
        self._pages: list[int] = []
        self._state = _State.PROMISED

    def open(self, num_pages: int) -> ListOf[int]:
        """The opening frame came: the promise becomes page ids. The first ``num_pages`` of them
        hold the prompt; the last may be the room for one more token."""
        assert self._state is _State.PROMISED, "a reservation opens once"
        self._state = _State.RESERVED
        self._pages = self._pool.redeem(self._prompt)
        return self._pages[:num_pages]

    def commit(self) -> list[int]:
        """Everything arrived: the pages (prompt and one more token) are the caller's now."""
        assert self._state is _State.RESERVED, "only received pages are committed"
        self._state = _State.SETTLED
        self._pool.commit(self._pages)
        self._pool.withdraw(self._growth)
        return self._pages

    def give_back(self) -> None:
        """Return what is still held; a no-op after ``commit`` and the second time."""
        if self._state is _State.PROMISED:
            self._pool.withdraw(self._prompt)
            self._pool.withdraw(self._growth)
        elif self._state is _State.RESERVED:
            self._pool.withdraw(self._growth)
            self._pool.drain(self._pages)  # the receiver has let go: nothing touches them
            self._pool.drained(self._pages)
        self._state = _State.SETTLED


def reserve(pool: PagePool, layout: KvLayout, request: GenerationRequest) -> Reservation:
    """Promise room for ``request``, whose KV another node will send.

    Raises PromptTooLong when it could never run here, NoCapacity when it cannot now.
    """
    _check_fits_at_all(pool, layout, request)
    num_pages = layout.num_pages(len(request.prompt_token_ids) + 1)
    prompt = pool.promise(num_pages)
    growth = pool.promise(_expected_growth(layout, request)) if prompt else None
    if prompt is None or growth is None:
        if prompt is not None:
            pool.withdraw(prompt)
        raise _no_room(pool, num_pages)
    return Reservation(pool, prompt, growth, len(request.prompt_token_ids))


def take_for_prompt(
    pool: PagePool, prefix: PrefixCache, layout: KvLayout, request: GenerationRequest
) -> tuple[list[int], int]:
    """Pages for a prompt that this node prefills (and one more token), all at once.

    Returns (pages, tokens whose KV the first of them hold already). Raises as ``reserve``.
    """
    _check_fits_at_all(pool, layout, request)
    num_pages = layout.num_pages(len(request.prompt_token_ids) + 1)
    cached = prefix.match(request.prompt_token_ids, request.cache_salt)
    fresh = pool.take(num_pages - len(cached))
    if fresh is None:
        pool.release(cached)
        raise _no_room(pool, num_pages)
    return cached + fresh, len(cached) * layout.page_tokens


def _check_fits_at_all(pool: PagePool, layout: KvLayout, request: GenerationRequest) -> None:
    num_prompt = len(request.prompt_token_ids)
    most, total = layout.num_pages(num_prompt + request.max_tokens), pool.num_pages
    if most > total:
        raise PromptTooLong(
            f"prompt ({num_prompt} tokens) and max_tokens ({request.max_tokens}) need {most} KV"
            f" pages; the decode node has {total}"
        )


def _no_room(pool: PagePool, num_pages: int) -> NoCapacity:
    return NoCapacity(
        f"no room to decode: {num_pages} KV pages wanted, {pool.num_available} of"
        f" {pool.num_pages} can be had now"
    )


def _expected_growth(layout: KvLayout, request: GenerationRequest) -> int:
    """Pages beyond prompt and first token that the request soon needs: each further choice copies
    the last prompt page, and each choice grows by a page if its tokens do not fit without."""
    num_prompt = len(request.prompt_token_ids)
    grows = layout.num_pages(num_prompt + request.max_tokens) > layout.num_pages(num_prompt + 1)
    return (request.num_choices - 1) + request.num_choices * grows
