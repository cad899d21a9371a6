"""The pool: pages scattered alike for whoever knows the seed, digests that tell every page."""

import pytest

from pdcore.errors import ConfigError
from pdlab.transfer.pool import (
    DIGEST_CHARACTERS,
    Extent,
    Pool,
    joint_digest,
    layout_of,
    num_wrong,
    page_table,
)

PAGE_BYTES = 4096
NUM_PAGES = 16


def make_pool(seed: int = 1) -> Pool:
    pool = Pool(NUM_PAGES * PAGE_BYTES + 100, seed)
    pool.number(PAGE_BYTES)
    return pool


@pytest.mark.parametrize(
    ("page_bytes", "num_layers"), [(12288, 1), (368640, 30), (65536, 1), (2097152, 32), (4000, 1)]
)
def test_pages_of_known_models_have_their_layers(page_bytes: int, num_layers: int) -> None:
    layout = layout_of(page_bytes)
    assert (layout.page_bytes, layout.num_layers) == (page_bytes, num_layers)


@pytest.mark.parametrize("page_bytes", [0, 7])
def test_a_page_that_no_layout_has_is_refused(page_bytes: int) -> None:
    with pytest.raises(ConfigError, match=f"a page of {page_bytes} bytes"):
        layout_of(page_bytes)


def test_pages_are_scattered_and_each_is_there_once() -> None:
    pool = make_pool()
    assert sorted(pool.page_table) == list(range(NUM_PAGES))
    assert pool.page_table != list(range(NUM_PAGES))
    assert pool.page_table == page_table(1, pool.num_bytes, PAGE_BYTES)
    assert make_pool(seed=2).page_table != pool.page_table


def test_logical_pages_read_in_order_land_in_order() -> None:
    source, sink = make_pool(1), make_pool(2)
    source.fill()
    extent = Extent(3, 5)
    data = b"".join(source.views(extent))
    sink.write(sink.pages(extent), 0, 1, memoryview(data))
    assert sink.digests(extent) == source.digests(extent)
    assert not num_wrong(sink.digests(extent), source.digests(Extent(0, NUM_PAGES)), 3)
    assert sink.digests(Extent(0, 3)) == make_pool(2).digests(Extent(0, 3))  # the rest is untouched


def test_one_layer_of_a_page_is_read_and_written() -> None:
    source, sink = Pool(4 * 368640, 1), Pool(4 * 368640, 2)
    for pool in (source, sink):
        pool.number(368640)
    source.fill()
    for layer in range(30):
        (part,) = source.read([source.page_table[1]], layer, 1)
        sink.write([sink.page_table[1]], layer, 1, part)
    assert sink.digests(Extent(1, 1)) == source.digests(Extent(1, 1))


def test_every_page_has_bytes_of_its_own_and_a_wiped_one_has_none() -> None:
    pool = make_pool()
    pool.fill()
    digests = pool.digests(Extent(0, NUM_PAGES))
    size = DIGEST_CHARACTERS
    assert len({digests[i : i + size] for i in range(0, len(digests), size)}) == NUM_PAGES
    pool.wipe(Extent(4, 2))
    assert num_wrong(pool.digests(Extent(0, NUM_PAGES)), digests, 0) == 2
    assert bytes(pool.views(Extent(4, 1))[0]) == bytes(PAGE_BYTES)


def test_a_page_that_is_missing_counts_as_wrong() -> None:
    pool = make_pool()
    digests = pool.digests(Extent(0, 4))
    assert num_wrong(digests, digests[: 3 * DIGEST_CHARACTERS], 0) == 1
    assert joint_digest(digests) != joint_digest(digests[: 3 * DIGEST_CHARACTERS])
