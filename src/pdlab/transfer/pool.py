"""The memory that an end moves pages out of or into: one mapping, touched at start, no model.

The same bytes are numbered as pages of whichever size a cell asks for, and a page table scatters
them, as a server's pool is after a while: page i of a payload lies anywhere. The sender's content
is drawn from a seed; the receiver wipes what it is about to receive, so that an old payload never
passes for a new one. Needs nothing but the standard library and xxhash: NIXL's own environment
runs it too.
"""

import ctypes
import mmap
import random
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from pdcore.errors import ConfigError
from pdcore.kv_layout import KvLayout

DIGEST_CHARACTERS = 16

# Sizes that occur: one layer or all layers of 16 tokens, of SmolLM2-135M and of Llama-3-8B.
_KNOWN_LAYOUTS = (
    KvLayout("laboratory", 1, 3, 64, 16, "bfloat16"),
    KvLayout("laboratory", 30, 3, 64, 16, "bfloat16"),
    KvLayout("laboratory", 1, 8, 128, 16, "bfloat16"),
    KvLayout("laboratory", 32, 8, 128, 16, "bfloat16"),
)
_SMALLEST_BYTES = 4  # K and V of one head of dimension 1, two bytes each


def layout_of(page_bytes: int) -> KvLayout:
    """A layout whose pages have this size: a real model's where there is one, else one layer."""
    for layout in _KNOWN_LAYOUTS:
        if layout.page_bytes == page_bytes:
            return layout
    if page_bytes < _SMALLEST_BYTES or page_bytes % _SMALLEST_BYTES:
        raise ConfigError(
            f"a page of {page_bytes} bytes: expected a multiple of {_SMALLEST_BYTES}, e.g. 360KiB"
        )
    return KvLayout("laboratory", 1, 1, page_bytes // _SMALLEST_BYTES, 1, "bfloat16")


def page_table(seed: int, pool_bytes: int, page_bytes: int) -> list[int]:
    """Where the logical pages of such a pool lie; the other end can tell, too."""
    table = list(range(pool_bytes // page_bytes))
    random.Random(f"{seed} {page_bytes}").shuffle(table)
    return table


@dataclass(frozen=True, slots=True)
class Extent:
    """Logical pages [first_page, first_page + num_pages) of the page table."""

    first_page: int
    num_pages: int


def num_wrong(digests: str, expected: str, first_page: int) -> int:
    """How many of ``digests``, of the logical pages from ``first_page`` on, differ from those of
    the whole payload."""
    size = DIGEST_CHARACTERS
    offset = first_page * size
    return sum(
        digests[start : start + size] != expected[offset + start : offset + start + size]
        for start in range(0, len(digests), size)
    )


def joint_digest(digests: str) -> str:
    return xxhash.xxh3_64_hexdigest(digests.encode())


class Pool:
    """Both halves of a transfer see their pages in one of these."""

    def __init__(self, num_bytes: int, seed: int) -> None:
        self._memory = mmap.mmap(-1, num_bytes)
        self._view = memoryview(self._memory)
        self._seed = seed
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        ctypes.memset(self.address, 0, num_bytes)  # a first touch later would be measured
        self.page_table: list[int] = []
        self.layout = layout_of(_SMALLEST_BYTES)

    @property
    def num_bytes(self) -> int:
        return len(self._view)

    def number(self, page_bytes: int) -> None:
        """From now on the pool consists of pages of this size, scattered anew."""
        self.layout = layout_of(page_bytes)
        self.page_table = page_table(self._seed, self.num_bytes, page_bytes)

    def fill(self) -> None:
        """Bytes that differ from page to page, whatever a page is."""
        draw = random.Random(self._seed)
        for start in range(0, self.num_bytes, _FILL_BYTES):
            end = min(start + _FILL_BYTES, self.num_bytes)
            self._view[start:end] = draw.randbytes(end - start)

    def wipe(self, extent: Extent) -> None:
        """Zeros over these logical pages, in place."""
        size = self.layout.page_bytes
        for page in self.pages(extent):
            ctypes.memset(self.address + page * size, 0, size)

    def pages(self, extent: Extent) -> Sequence[int]:
        """Where these logical pages lie."""
        return self.page_table[extent.first_page : extent.first_page + extent.num_pages]

    def views(self, extent: Extent) -> list[memoryview]:
        """The logical pages in order, to read from or to receive into."""
        return self.read(self.pages(extent), 0, self.layout.num_layers)

    def digests(self, extent: Extent) -> str:
        """One digest for each logical page, joined."""
        return "".join(map(xxhash.xxh3_64_hexdigest, self.views(extent)))

    def read(self, pages: Sequence[int], first_layer: int, num_layers: int) -> list[memoryview]:
        return [self._view[self._span(page, first_layer, num_layers)] for page in pages]

    def write(
        self, pages: Sequence[int], first_layer: int, num_layers: int, data: memoryview
    ) -> None:
        size = num_layers * self.layout.layer_bytes
        for i, page in enumerate(pages):
            span = self._span(page, first_layer, num_layers)
            self._view[span] = data[i * size : (i + 1) * size]

    def _span(self, page: int, first_layer: int, num_layers: int) -> slice:
        start = page * self.layout.page_bytes + first_layer * self.layout.layer_bytes
        return slice(start, start + num_layers * self.layout.layer_bytes)


_FILL_BYTES = 1 << 20
