"""The page pool: each transition by example, then any order of them against a model."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pdcore.errors import ConfigError
from pdengine.page_pool import PagePool, PoolCounts, Promise
from pdengine.prefix_cache import PrefixCache


def counts(pool: PagePool) -> dict[str, int]:
    """The counts that are not zero, once the pool has checked itself."""
    pool.check()
    c = pool.counts()
    names = ("free", "cached", "reserved", "used", "draining", "promised", "shared")
    return {name: getattr(c, name) for name in names if getattr(c, name)}


def taken(pool: PagePool, num_pages: int) -> list[int]:
    pages = pool.take(num_pages)
    assert pages is not None
    return pages


def cached(pool: PagePool, *labels: bytes) -> list[int]:
    """Pages with these labels and no reference, released as one list."""
    pages = taken(pool, len(labels))
    for page, label in zip(pages, labels, strict=True):
        pool.label(page, label)
    pool.release(list(pages))
    return pages


def test_new_pool_is_free() -> None:
    assert PagePool(3).counts() == PoolCounts(3, 0, 0, 0, 0, 0, 0, total=3)


def test_pool_without_pages_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 pages"):
        PagePool(0)


def test_take_and_release() -> None:
    pool = PagePool(3)
    pages = taken(pool, 2)
    assert len(set(pages)) == 2
    assert counts(pool) == {"free": 1, "used": 2}
    pool.release(pages)
    assert counts(pool) == {"free": 3}


def test_take_is_all_or_nothing() -> None:
    pool = PagePool(3)
    assert pool.take(4) is None
    assert counts(pool) == {"free": 3}
    assert pool.take(0) == []


def test_release_twice_is_harmless_even_for_a_page_that_another_shares() -> None:
    pool = PagePool(2)
    mine = taken(pool, 1)
    theirs = list(mine)
    assert pool.share(theirs)
    pool.release(mine)
    pool.release(mine)
    assert counts(pool) == {"free": 1, "used": 1}


def test_a_reference_too_many_is_caught() -> None:
    pool = PagePool(1)
    pages = taken(pool, 1)
    pool.release(list(pages))
    with pytest.raises(AssertionError, match="no reference"):
        pool.release(pages)


def test_promise_sets_room_aside() -> None:
    pool = PagePool(4)
    promise = pool.promise(3)
    assert promise is not None
    assert counts(pool) == {"free": 4, "promised": 3}
    assert pool.promise(2) is None
    assert pool.take(2) is None
    others = taken(pool, 1)
    assert sorted(pool.redeem(promise) + others) == [0, 1, 2, 3]
    assert counts(pool) == {"reserved": 3, "used": 1}


def test_promise_may_be_redeemed_in_part() -> None:
    pool = PagePool(4)
    promise = pool.promise(4)
    assert promise is not None
    assert len(pool.redeem(promise, 1)) == 1
    assert counts(pool) == {"free": 3, "reserved": 1}


def test_withdraw_is_idempotent_and_leaves_a_redeemed_promise_alone() -> None:
    pool = PagePool(4)
    first, second = pool.promise(1), pool.promise(2)
    assert first is not None
    assert second is not None
    pool.withdraw(first)
    pool.withdraw(first)
    assert counts(pool) == {"free": 4, "promised": 2}
    pool.redeem(second)
    pool.withdraw(second)
    assert counts(pool) == {"free": 2, "reserved": 2}


def test_pages_are_drawn_from_a_promise_one_by_one() -> None:
    pool = PagePool(4)
    promise = pool.promise(2)
    others = pool.take(2)
    assert promise is not None and others is not None
    assert pool.take(1) is None
    drawn = [pool.draw(promise), pool.draw(promise)]
    assert sorted([*drawn, *others]) == [0, 1, 2, 3]  # type: ignore[list-item,type-var]
    assert pool.draw(promise) is None
    assert counts(pool) == {"used": 4}
    pool.withdraw(promise)
    assert pool.draw(promise) is None
    assert counts(pool) == {"used": 4}


def test_promise_is_redeemed_once() -> None:
    pool = PagePool(4)
    promise = pool.promise(1)
    assert promise is not None
    pool.redeem(promise)
    with pytest.raises(AssertionError, match="redeemed or withdrawn"):
        pool.redeem(promise)


def test_equal_promises_are_two() -> None:
    pool = PagePool(4)
    first, second = pool.promise(2), pool.promise(2)
    assert first is not None
    assert second is not None
    pool.withdraw(first)
    pool.redeem(second)
    assert counts(pool) == {"free": 2, "reserved": 2}


def test_reserved_pages_become_used_by_commit_only() -> None:
    pool = PagePool(2)
    promise = pool.promise(2)
    assert promise is not None
    pages = pool.redeem(promise)
    with pytest.raises(AssertionError):
        pool.label(pages[0], b"a")
    with pytest.raises(AssertionError):
        pool.share(pages)
    pool.commit(pages)
    assert counts(pool) == {"used": 2}
    with pytest.raises(AssertionError):
        pool.commit(pages)
    pool.release(pages)
    assert counts(pool) == {"free": 2}


def test_share_counts_references() -> None:
    pool = PagePool(2)
    pages = taken(pool, 1)
    assert pool.share(pages)
    assert pool.share(pages)
    assert pool.num_references(pages[0]) == 3
    assert counts(pool) == {"free": 1, "used": 1, "shared": 1}
    pool.release(list(pages))
    assert counts(pool) == {"free": 1, "used": 1, "shared": 1}
    pool.release(list(pages))
    assert counts(pool) == {"free": 1, "used": 1}


def test_a_labelled_page_is_cached_and_comes_back() -> None:
    pool = PagePool(2)
    (page,) = cached(pool, b"a")
    assert counts(pool) == {"free": 1, "cached": 1}
    assert pool.labelled(b"a") == page
    assert pool.share([page])
    assert counts(pool) == {"free": 1, "used": 1}


def test_cached_pages_are_taken_when_no_free_one_is_left_oldest_first() -> None:
    pool = PagePool(3)
    (old,), (new,) = cached(pool, b"old"), cached(pool, b"new")
    pages = taken(pool, 2)
    assert pages[1] == old
    assert pool.labelled(b"old") is None
    assert pool.labelled(b"new") == new
    assert counts(pool) == {"cached": 1, "used": 2}


def test_use_makes_a_cached_page_young() -> None:
    pool = PagePool(2)
    (old,), (new,) = cached(pool, b"old"), cached(pool, b"new")
    assert pool.share([old])
    pool.release([old])
    assert pool.take(1) == [new]


def test_the_end_of_a_chain_leaves_the_cache_before_its_beginning() -> None:
    pool = PagePool(3)
    first, second, third = cached(pool, b"1", b"12", b"123")
    assert pool.take(3) == [third, second, first]


def test_promises_are_redeemed_from_the_cache_too() -> None:
    pool = PagePool(2)
    cached(pool, b"a", b"b")
    promise = pool.promise(2)
    assert promise is not None
    assert counts(pool) == {"cached": 2, "promised": 2}
    assert len(pool.redeem(promise)) == 2
    assert pool.labelled(b"a") is None


def test_share_does_not_eat_promised_room() -> None:
    pool = PagePool(2)
    pages = cached(pool, b"a", b"b")
    promise = pool.promise(1)
    assert promise is not None
    assert not pool.share(pages)
    assert counts(pool) == {"cached": 2, "promised": 1}
    assert pool.share(pages[:1])
    assert not pool.share(pages[1:])
    assert pool.share(pages[:1]), "a used page can always be shared"


def test_the_first_page_with_a_label_keeps_it() -> None:
    pool = PagePool(2)
    first, second = taken(pool, 2)
    pool.label(first, b"a")
    pool.label(second, b"a")
    pool.label(first, b"a")
    assert pool.labelled(b"a") == first
    pool.release([first, second])
    assert counts(pool) == {"free": 1, "cached": 1}


def test_a_page_has_one_label_until_it_is_taken_again() -> None:
    pool = PagePool(1)
    (page,) = cached(pool, b"a")
    assert pool.share([page])
    with pytest.raises(AssertionError, match="another label"):
        pool.label(page, b"b")
    pool.release([page])
    assert pool.take(1) == [page]
    pool.label(page, b"b")
    assert pool.labelled(b"b") == page


def test_unlabelled_pages_are_not_found_and_free_when_nobody_uses_them() -> None:
    pool = PagePool(3)
    cached(pool, b"a")
    (page,) = taken(pool, 1)
    pool.label(page, b"b")
    at_rest = pool.labelled(b"a")
    assert at_rest is not None
    pool.unlabel([page, at_rest, page])
    assert (pool.labelled(b"a"), pool.labelled(b"b")) == (None, None)
    assert counts(pool) == {"free": 2, "used": 1}
    pool.release([page])
    assert counts(pool) == {"free": 3}
    pool.check()


def test_drained_pages_of_an_aborted_transfer_are_free() -> None:
    pool = PagePool(2)
    promise = pool.promise(2)
    assert promise is not None
    pages = pool.redeem(promise)
    pool.drain(pages)
    assert counts(pool) == {"draining": 2}
    assert pool.take(1) is None
    pool.drained(pages)
    pool.drained(pages)
    assert counts(pool) == {"free": 2}


def test_a_draining_page_is_not_reused_when_its_last_other_reference_goes() -> None:
    pool = PagePool(1)
    mine = taken(pool, 1)
    theirs = list(mine)
    pool.share(theirs)
    pool.drain(mine)
    assert counts(pool) == {"used": 1}
    pool.release(theirs)
    assert counts(pool) == {"draining": 1}
    pool.drained(mine)
    assert counts(pool) == {"free": 1}


def test_a_labelled_page_is_cached_after_draining() -> None:
    pool = PagePool(1)
    pages = taken(pool, 1)
    pool.label(pages[0], b"a")
    pool.drain(pages)
    pool.drained(pages)
    assert counts(pool) == {"cached": 1}


def test_only_draining_pages_can_be_drained() -> None:
    pool = PagePool(1)
    with pytest.raises(AssertionError, match="not draining"):
        pool.drained(taken(pool, 1))


NUM_PAGES = 8
PAGE_TOKENS = 2
prompts = st.lists(st.integers(0, 1), min_size=1, max_size=8)
salts = st.sampled_from(["", "salt"])


class Owners(RuleBasedStateMachine):
    """Owners that do, in any order, all that an owner may do; ``held`` are lists with references.

    ``content`` is what each page holds: the salt and all tokens up to its end, or nothing yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(NUM_PAGES)
        self.cache = PrefixCache(self.pool, PAGE_TOKENS, "layout")
        self.content: dict[int, tuple[str, tuple[int, ...]] | None] = {}
        self.promises: dict[Promise, int] = {}  # pages that are left of each
        self.reserved: list[list[int]] = []
        self.held: list[list[int]] = []
        self.draining: list[list[int]] = []

    def room(self) -> int:
        """The model's own count of pages in nobody's hands that are not promised either."""
        lists = (*self.reserved, *self.held, *self.draining)
        busy = {page for pages in lists for page in pages}
        return NUM_PAGES - len(busy) - sum(self.promises.values())

    def receive(self, pages: list[int]) -> list[int]:
        """New pages: nobody has them, and what they held is gone."""
        for others in (*self.reserved, *self.held, *self.draining):
            assert not set(pages) & set(others)
        assert len(set(pages)) == len(pages)
        self.content.update(dict.fromkeys(pages))
        return pages

    @rule(num_pages=st.integers(0, NUM_PAGES + 1))
    def promise(self, num_pages: int) -> None:
        fits = num_pages <= self.room()
        promise = self.pool.promise(num_pages)
        assert (promise is not None) == fits
        if promise is not None:
            self.promises[promise] = num_pages

    @precondition(lambda self: self.promises)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        promise = data.draw(st.sampled_from(list(self.promises)))
        del self.promises[promise]
        self.pool.withdraw(promise)
        self.pool.withdraw(promise)

    @precondition(lambda self: self.promises)
    @rule(data=st.data())
    def redeem(self, data: st.DataObject) -> None:
        promise = data.draw(st.sampled_from(list(self.promises)))
        num_pages = data.draw(st.integers(0, self.promises.pop(promise)))
        pages = self.pool.redeem(promise, num_pages)
        assert len(pages) == num_pages
        self.reserved.append(self.receive(pages))

    @precondition(lambda self: self.promises)
    @rule(data=st.data())
    def draw(self, data: st.DataObject) -> None:
        promise = data.draw(st.sampled_from(list(self.promises)))
        page = self.pool.draw(promise)
        assert (page is not None) == (self.promises[promise] > 0)
        if page is not None:
            self.promises[promise] -= 1
            self.held.append(self.receive([page]))

    @precondition(lambda self: self.reserved)
    @rule()
    def commit(self) -> None:
        pages = self.reserved.pop()
        self.pool.commit(pages)
        self.held.append(pages)

    @precondition(lambda self: self.reserved)
    @rule()
    def abort(self) -> None:
        pages = self.reserved.pop()
        self.pool.drain(pages)
        self.draining.append(pages)

    @rule(num_pages=st.integers(0, NUM_PAGES + 1))
    def take(self, num_pages: int) -> None:
        fits = num_pages <= self.room()
        pages = self.pool.take(num_pages)
        assert (pages is not None) == fits
        if pages is not None:
            self.held.append(self.receive(pages))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        pages = list(data.draw(st.sampled_from(self.held)))
        assert self.pool.share(pages)
        self.held.append(pages)

    @rule(token_ids=prompts, salt=salts, data=st.data())
    def compute(self, token_ids: list[int], salt: str, data: st.DataObject) -> None:
        """Match, take the rest, compute some of it, insert: what a prefill node does."""
        pages = self.cache.match(token_ids, salt)
        assert len(pages) * PAGE_TOKENS < len(token_ids)
        for i, page in enumerate(pages):
            assert self.content[page] == (salt, tuple(token_ids[: (i + 1) * PAGE_TOKENS]))
        self.held.append(pages)
        rest = self.pool.take(-(-len(token_ids) // PAGE_TOKENS) - len(pages))
        if rest is None:
            return
        pages.extend(self.receive(rest))
        num_cached = (len(pages) - len(rest)) * PAGE_TOKENS
        num_computed = data.draw(st.integers(num_cached, len(token_ids)))
        for end in range(num_cached + PAGE_TOKENS, num_computed + 1, PAGE_TOKENS):
            self.content[pages[end // PAGE_TOKENS - 1]] = (salt, tuple(token_ids[:end]))
        self.cache.insert(token_ids, salt, pages, num_computed)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        pages = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.pool.release(pages)
        self.pool.release(pages)
        assert pages == []

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        pages = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.pool.drain(pages)
        self.draining.append(list(pages))
        pages.clear()

    @precondition(lambda self: self.draining)
    @rule(data=st.data())
    def drained(self, data: st.DataObject) -> None:
        pages = self.draining.pop(data.draw(st.integers(0, len(self.draining) - 1)))
        self.pool.drained(pages)
        self.pool.drained(pages)

    @invariant()
    def counts_are_those_of_the_owners(self) -> None:
        self.pool.check()
        references = Counter(page for pages in self.held for page in pages)
        draining = {page for pages in self.draining for page in pages} - references.keys()
        now = self.pool.counts()
        assert now.used == len(references)
        assert now.shared == sum(count > 1 for count in references.values())
        assert now.reserved == sum(len(pages) for pages in self.reserved)
        assert now.draining == len(draining)
        assert now.promised == sum(self.promises.values())
        assert all(self.pool.num_references(page) == n for page, n in references.items())

    def teardown(self) -> None:
        for promise in self.promises:
            self.pool.withdraw(promise)
        for pages in self.reserved:
            self.pool.drain(pages)
        for pages in self.held:
            self.pool.release(pages)
        for pages in (*self.reserved, *self.draining):
            self.pool.drained(pages)
        rest = self.pool.counts()
        assert rest.free + rest.cached == NUM_PAGES and not rest.promised


Owners.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestOwners = Owners.TestCase
