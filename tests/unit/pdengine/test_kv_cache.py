"""The cache as tensors and the cache as bytes show the same pages."""

import pytest
import torch

from pdcore.kv_layout import KvLayout
from pdengine.kv_cache import KvCache

LAYERS, PAGE_TOKENS, HEADS, HEAD_DIM, PAGES = 3, 4, 2, 8, 7


def cache(dtype: str = "float32") -> KvCache:
    layout = KvLayout("m", LAYERS, HEADS, HEAD_DIM, PAGE_TOKENS, dtype)
    kv = KvCache(layout, PAGES, torch.device("cpu"))
    kv.pages.copy_(torch.randn(kv.pages.shape, generator=torch.Generator().manual_seed(0)))
    return kv


def joined(stretches: list[memoryview]) -> bytes:
    return b"".join(stretches)


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_read_gives_the_bytes_of_pages_in_the_order_asked_for(dtype: str) -> None:
    kv = cache(dtype)
    assert joined(kv.read([5, 0, 2], 0, LAYERS)) == raw(kv.pages[[5, 0, 2]])
    assert joined(kv.read([4, 5], 1, 2)) == raw(kv.pages[[4, 5], 1:3])
    assert len(joined(kv.read([3], 0, LAYERS))) == kv.layout.page_bytes
    assert len(joined(kv.read([3], 2, 1))) == kv.layout.layer_bytes


@pytest.mark.parametrize(
    ("pages", "layers", "num_stretches"),
    [
        ([0, 1, 2, 3], LAYERS, 1),
        ([0, 1, 3, 4], LAYERS, 2),
        ([3, 2, 1], LAYERS, 3),
        ([2, 2], LAYERS, 2),
        ([0, 1, 2], 1, 3),
        ([], LAYERS, 0),
    ],
)
def test_consecutive_pages_are_one_stretch(
    pages: list[int], layers: int, num_stretches: int
) -> None:
    assert len(cache().read(pages, 0, layers)) == num_stretches


def test_read_is_a_view() -> None:
    kv = cache()
    (page,) = kv.read([2], 0, LAYERS)
    kv.pages[2] = 0
    assert bytes(page) == bytes(kv.layout.page_bytes)


@pytest.mark.parametrize(("first_layer", "num_layers"), [(0, LAYERS), (1, 1), (1, 2)])
def test_what_is_read_can_be_written_elsewhere(first_layer: int, num_layers: int) -> None:
    source, target = cache(), cache()
    target.pages.fill_(-1)
    data = joined(source.read([6, 0, 1], first_layer, num_layers))
    target.write([1, 4, 5], first_layer, num_layers, memoryview(data))
    expected = torch.full_like(target.pages, -1)
    layers = slice(first_layer, first_layer + num_layers)
    expected[[1, 4, 5], layers] = source.pages[[6, 0, 1], layers]
    assert torch.equal(target.pages, expected)


def test_data_of_another_size_is_refused_and_nothing_written() -> None:
    kv = cache()
    before = kv.pages.clone()
    for size in (kv.layout.page_bytes - 1, kv.layout.page_bytes + 1, 0):
        with pytest.raises(ValueError, match=f"{size} bytes"):
            kv.write([0], 0, LAYERS, memoryview(bytes(size)))
    assert torch.equal(kv.pages, before)


def test_rows_stored_at_slots_appear_in_the_layer_views() -> None:
    kv = cache()
    before = kv.pages.clone()
    slots = torch.tensor([5 * PAGE_TOKENS + 3, 0 * PAGE_TOKENS + 1])
    keys, values = torch.randn(2, 2, HEADS, HEAD_DIM)
    kv.store(1, kv.key_rows(slots), keys, values)
    key_view, value_view = kv.layer(1)
    assert torch.equal(key_view[[5, 0], [3, 1]], keys)
    assert torch.equal(value_view[[5, 0], [3, 1]], values)
    gathered = kv.gather(1, kv.key_rows(slots), kv.gathered(2))
    assert torch.equal(torch.stack(gathered), torch.stack((keys, values)))
    assert (kv.pages != before).sum() == keys.numel() + values.numel()


def test_copy_page() -> None:
    kv = cache()
    before = kv.pages.clone()
    kv.copy_page(2, 6)
    assert torch.equal(kv.pages[6], before[2])
    assert torch.equal(kv.pages[:6], before[:6])
