"""The prefix cache: what is found, what is not, and what happens to the pages."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from pdengine.page_pool import PagePool
from pdengine.prefix_cache import PrefixCache

PAGE = 4
PROMPT = tuple(range(100, 111))  # 2 full pages and 3 tokens


def stored(cache: PrefixCache, pool: PagePool, token_ids: tuple[int, ...], salt: str) -> list[int]:
    """Compute and insert a prompt; its pages, which have been released."""
    pages = pool.take(-(-len(token_ids) // PAGE))
    assert pages is not None
    cache.insert(token_ids, salt, pages, len(token_ids))
    kept = list(pages)
    pool.release(pages)
    return kept


def test_the_same_prompt_finds_its_full_pages_with_a_reference_each() -> None:
    pool = PagePool(8)
    cache = PrefixCache(pool, PAGE, "layout")
    pages = stored(cache, pool, PROMPT, "")
    assert pool.counts().cached == 2
    found = cache.match(PROMPT, "")
    assert found == pages[:2]
    assert [pool.num_references(page) for page in found] == [1, 1]
    pool.release(found)
    assert pool.counts().used == 0
    pool.check()


def test_the_last_token_is_never_matched() -> None:
    pool = PagePool(8)
    cache = PrefixCache(pool, PAGE, "layout")
    pages = stored(cache, pool, PROMPT[:8], "")
    assert cache.match(PROMPT[:8], "") == pages[:1]
    assert cache.match(PROMPT[:9], "") == pages
    assert cache.match(PROMPT[:4], "") == []
    assert cache.match(PROMPT[:1], "") == []


def test_a_different_first_token_finds_nothing_and_a_later_one_less() -> None:
    pool = PagePool(8)
    cache = PrefixCache(pool, PAGE, "layout")
    pages = stored(cache, pool, PROMPT, "")
    assert cache.match((1, *PROMPT[1:]), "") == []
    assert cache.match((*PROMPT[:7], 1, *PROMPT[8:]), "") == pages[:1]


def test_the_same_tokens_after_another_beginning_are_another_page() -> None:
    pool = PagePool(8)
    cache = PrefixCache(pool, PAGE, "layout")
    stored(cache, pool, (1, 1, 1, 1, 2, 2, 2, 2), "")
    assert cache.match((2, 2, 2, 2, 9), "") == []
    assert len(cache.match((3, 3, 3, 3, 2, 2, 2, 2, 9), "")) == 0


def test_salt_and_fingerprint_keep_prompts_apart() -> None:
    pool = PagePool(16)
    same, other = PrefixCache(pool, PAGE, "layout"), PrefixCache(pool, PAGE, "layout2")
    cache = PrefixCache(pool, PAGE, "layout")
    stored(cache, pool, PROMPT, "salt")
    assert len(same.match(PROMPT, "salt")) == 2
    for salt, where in product(["", "Salt", "salt "], [cache, other]):
        assert where.match(PROMPT, salt) == []
    assert other.match(PROMPT, "salt") == []


def test_the_border_between_fingerprint_and_salt_counts() -> None:
    pool = PagePool(8)
    stored(PrefixCache(pool, PAGE, "ab"), pool, PROMPT, "c")
    assert PrefixCache(pool, PAGE, "a").match(PROMPT, "bc") == []


def test_only_computed_full_pages_are_inserted() -> None:
    pool = PagePool(8)
    cache = PrefixCache(pool, PAGE, "layout")
    pages = pool.take(3)
    assert pages is not None
    for num_computed, num_found in ((0, 0), (3, 0), (4, 1), (7, 1), (8, 2), (11, 2)):
        cache.insert(PROMPT, "", pages, num_computed)
        found = cache.match(PROMPT, "")
        assert found == pages[:num_found]
        pool.release(found)


def test_generated_tokens_are_found_like_a_prompt() -> None:
    pool = PagePool(8)
    cache = PrefixCache(pool, PAGE, "layout")
    conversation = (*PROMPT, 5, 6)
    pages = stored(cache, pool, conversation, "")
    assert cache.match((*conversation, 7), "") == pages[:3]


def test_an_existing_entry_wins() -> None:
    pool = PagePool(8)
    cache = PrefixCache(pool, PAGE, "layout")
    first, second = pool.take(2), pool.take(2)
    assert first is not None
    assert second is not None
    cache.insert(PROMPT, "", first, 8)
    cache.insert(PROMPT, "", second, 8)
    assert cache.match(PROMPT, "") == first
    pool.release(second)
    assert pool.counts().free == 6


def test_a_taken_page_is_not_found_and_ends_the_match() -> None:
    pool = PagePool(3)
    cache = PrefixCache(pool, PAGE, "layout")
    pages = stored(cache, pool, (*PROMPT, 1), "")
    assert pool.take(1) == [pages[2]]
    assert cache.match((*PROMPT, 1, 2), "") == pages[:2]


def test_a_page_whose_beginning_is_gone_is_not_found_until_that_is_back() -> None:
    pool = PagePool(3)
    cache = PrefixCache(pool, PAGE, "layout")
    first, second, _ = stored(cache, pool, PROMPT, "")
    assert pool.share([second])
    taken = pool.take(2)
    assert taken is not None
    assert first in taken
    assert cache.match(PROMPT, "") == []
    cache.insert(PROMPT, "", taken, PAGE)
    assert cache.match(PROMPT, "") == [taken[0], second]
    pool.check()


def test_promised_room_is_not_matched() -> None:
    pool = PagePool(3)
    cache = PrefixCache(pool, PAGE, "layout")
    pages = stored(cache, pool, PROMPT, "")
    assert pool.promise(2) is not None
    assert cache.match(PROMPT, "") == pages[:1]
    pool.check()


def test_a_disabled_cache_finds_and_keeps_nothing() -> None:
    pool = PagePool(8)
    stored(PrefixCache(pool, PAGE, "layout"), pool, PROMPT, "")
    cache = PrefixCache(pool, PAGE, "layout", enabled=False)
    assert cache.match(PROMPT, "") == []
    stored(cache, pool, PROMPT, "salt")
    assert pool.counts().cached == 2


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 1), max_size=14).map(tuple), max_size=5),
    st.lists(st.integers(0, 1), min_size=1, max_size=14).map(tuple),
)
def test_finds_the_longest_common_prefix(
    earlier: list[tuple[int, ...]], prompt: tuple[int, ...]
) -> None:
    pool = PagePool(32)
    cache = PrefixCache(pool, PAGE, "layout")
    for token_ids in earlier:
        stored(cache, pool, token_ids, "")
    common = max((num_common(other, prompt[:-1]) for other in earlier), default=0)
    assert len(cache.match(prompt, "")) == common // PAGE
    pool.check()


def num_common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    longest = min(len(left), len(right))
    return next((i for i in range(longest) if left[i] != right[i]), longest)
