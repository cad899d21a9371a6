"""Room for a request, from promise to pages.

``Generate`` promises pages for the prompt, one more token, and growth; without room it refuses at
once. How much growth is the admission's: ``on_demand`` what is to be expected soon, until the
request runs; ``reserve_max`` all that it could ever need, of which its pages are then drawn: as
systems did before paging, to compare with. The opening frame of the transfer redeems the promise of
the prompt: it cannot fail for lack of pages. Whatever was not committed goes back with
``give_back``, which may be called twice.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from enum import Enum, auto

from pdcore.errors import NoCapacity, PromptTooLong
from pdcore.generation import GenerationRequest
from pdcore.kv_layout import KvLayout
from pdengine.page_pool import PagePool, Promise
from pdengine.prefix_cache import PrefixCache


@dataclass(frozen=True, slots=True)
class Admission:
    """``growth``: pages to promise beyond prompt and first token. ``lasts``: the promise stays with
    the request until it is over, and its pages come out of it; else it ends with the commit."""

    growth: Callable[[KvLayout, GenerationRequest], int]
    lasts: bool


@dataclass(frozen=True, slots=True)
class Room:
    """``pages`` of a prompt and one more token; the first ``num_cached`` tokens are computed.
    ``growth``: what is promised to the request while it runs."""

    pages: list[int]
    num_cached: int
    growth: Promise | None


class _State(Enum):
    PROMISED = auto()
    RESERVED = auto()
    SETTLED = auto()  # committed, or given back


class Reservation:
    """One request's room. Satisfies kvtransfer's ``TransferTarget``."""

    def __init__(
        self, pool: PagePool, prompt: Promise, growth: Promise, num_tokens: int, *, lasts: bool
    ) -> None:
        self.num_tokens = num_tokens
        self._lasts = lasts
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

    def commit(self) -> Room:
        """Everything arrived: the pages (prompt and one more token) are the caller's now, and so is
        a promise that lasts."""
        assert self._state is _State.RESERVED, "only received pages are committed"
        self._state = _State.SETTLED
        self._pool.commit(self._pages)
        if self._lasts:
            return Room(self._pages, self.num_tokens, self._growth)
        self._pool.withdraw(self._growth)
        return Room(self._pages, self.num_tokens, None)

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


def reserve(
    pool: PagePool, layout: KvLayout, request: GenerationRequest, admission: Admission
) -> Reservation:
    """Promise room for ``request``, whose KV another node will send.

    Raises PromptTooLong when it could never run here, NoCapacity when it cannot now.
    """
    num_growth = admission.growth(layout, request)
    _check_fits_at_all(pool, layout, request, num_growth)
    num_pages = layout.num_pages(len(request.prompt_token_ids) + 1)
    prompt = pool.promise(num_pages)
    growth = pool.promise(num_growth) if prompt else None
    if prompt is None or growth is None:
        if prompt is not None:
            pool.withdraw(prompt)
        raise _no_room(pool, num_pages + num_growth)
    num_prompt = len(request.prompt_token_ids)
    return Reservation(pool, prompt, growth, num_prompt, lasts=admission.lasts)


def take_for_prompt(
    pool: PagePool,
    prefix: PrefixCache,
    layout: KvLayout,
    request: GenerationRequest,
    admission: Admission,
) -> Room:
    """Pages for a prompt that this node prefills (and one more token), all at once.

    Raises as ``reserve``.
    """
    num_growth = admission.growth(layout, request) if admission.lasts else 0
    _check_fits_at_all(pool, layout, request, num_growth)
    num_pages = layout.num_pages(len(request.prompt_token_ids) + 1)
    cached = prefix.match(request.prompt_token_ids, request.cache_salt)
    fresh = pool.take(num_pages - len(cached))
    growth = pool.promise(num_growth) if fresh is not None else None
    if fresh is None or growth is None:
        pool.release(cached + (fresh or []))
        raise _no_room(pool, num_pages + num_growth)
    num_cached = len(cached) * layout.page_tokens
    return Room(cached + fresh, num_cached, growth if admission.lasts else None)


def _check_fits_at_all(
    pool: PagePool, layout: KvLayout, request: GenerationRequest, num_growth: int
) -> None:
    num_prompt = len(request.prompt_token_ids)
    promised = layout.num_pages(num_prompt + 1) + num_growth
    most, total = max(layout.num_pages(num_prompt + request.max_tokens), promised), pool.num_pages
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


def _most_growth(layout: KvLayout, request: GenerationRequest) -> int:
    """Every choice by itself, prompt and ``max_tokens``, as if nothing were shared."""
    num_prompt = len(request.prompt_token_ids)
    most = request.num_choices * layout.num_pages(num_prompt + request.max_tokens)
    return most - layout.num_pages(num_prompt + 1)


ADMISSIONS: Mapping[str, Admission] = {
    "on_demand": Admission(_expected_growth, lasts=False),
    "reserve_max": Admission(_most_growth, lasts=True),
}
