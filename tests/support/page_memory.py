"""KV memory on a bytearray: a page source and sink, and layouts that are small enough to read."""

import random
from collections import Counter
from collections.abc import Sequence

from kvtransfer.messages import Identity
from pdcore.cluster import Epoch, NodeName
from pdcore.kv_layout import KvLayout

# 128 bytes a layer, 384 a page.
TINY = KvLayout("tiny", num_layers=3, num_kv_heads=1, head_dim=4, page_tokens=4, dtype="float32")
SENDER = Identity(NodeName("prefill-0"), Epoch(11))
RECEIVER = Identity(NodeName("decode-0"), Epoch(22))


class PageMemory:
    """``num_writes`` counts, for each (page, layer), how often it was written; ``fails``: a write
    raises OSError instead."""

    def __init__(self, layout: KvLayout, num_pages: int, seed: int | None = None) -> None:
        self.layout = layout
        size = num_pages * layout.page_bytes
        self.data = bytearray(size if seed is None else random.Random(seed).randbytes(size))
        self.num_writes: Counter[tuple[int, int]] = Counter()
        self.fails = False

    def page(self, page: int) -> bytes:
        start = page * self.layout.page_bytes
        return bytes(self.data[start : start + self.layout.page_bytes])

    def pages(self, pages: Sequence[int]) -> bytes:
        return b"".join(self.page(page) for page in pages)

    def read(self, pages: Sequence[int], first_layer: int, num_layers: int) -> list[memoryview]:
        return [self._view(page, first_layer, num_layers) for page in pages]

    def write(
        self, pages: Sequence[int], first_layer: int, num_layers: int, data: memoryview
    ) -> None:
        if self.fails:
            raise OSError("no memory there")
        size = num_layers * self.layout.layer_bytes
        assert len(data) == len(pages) * size
        for index, page in enumerate(pages):
            self._view(page, first_layer, num_layers)[:] = data[index * size : (index + 1) * size]
            layers = range(first_layer, first_layer + num_layers)
            self.num_writes.update((page, layer) for layer in layers)

    def _view(self, page: int, first_layer: int, num_layers: int) -> memoryview:
        start = page * self.layout.page_bytes + first_layer * self.layout.layer_bytes
        return memoryview(self.data)[start : start + num_layers * self.layout.layer_bytes]


class Target:
    """A promise that becomes the given pages; remembers how often it was opened."""

    def __init__(self, num_tokens: int, pages: Sequence[int]) -> None:
        self.num_tokens = num_tokens
        self.pages = pages
        self.num_opened = 0

    def open(self, num_pages: int) -> Sequence[int]:
        self.num_opened += 1
        assert num_pages <= len(self.pages)
        return self.pages
