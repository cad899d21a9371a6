"""KV memory: one tensor ``[num_pages, num_layers, 2, page_tokens, num_kv_heads, head_dim]``.

A page is contiguous over all layers, so it leaves and arrives as one stretch of bytes; a layer's
view is strided. ``store``, ``rows`` and ``copy_page`` are for the compute thread; ``read`` and
``write`` serve a transfer and may run beside it, on other pages. Which pages may be touched is the
``PagePool``'s business.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pdcore.allocator import prefer_huge_pages
from pdcore.kv_layout import KvLayout
from pdengine.page_bytes import HostBytes, PageBytes, StagedBytes

TORCH_DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}


class KvCache:
    """Allocated and touched at once: page faults of a new pool would slow the first requests.

    ``rows`` is ``[all token rows, num_kv_heads, head_dim]``: the keys, or the values, of one token
    in one layer.
    """

    def __init__(self, layout: KvLayout, num_pages: int, device: torch.device) -> None:
        self.layout = layout
        self.num_pages = num_pages
        self.device = device
        row = (layout.num_kv_heads, layout.head_dim)
        shape = (num_pages, layout.num_layers, 2, layout.page_tokens, *row)
        self.pages = torch.empty(shape, dtype=TORCH_DTYPES[layout.dtype], device=device)
        if device.type == "cpu":
            prefer_huge_pages(self.pages.data_ptr(), self.pages.nbytes)
        self.pages.fill_(0)
        self.rows = self.pages.view(-1, *row)
        self._bytes: PageBytes = (
            StagedBytes(self.pages) if device.type == "cuda" else HostBytes(layout, self.pages)
        )

    @property
    def value_offset(self) -> int:
        """From the row of a token's keys to that of its values."""
        return self.layout.page_tokens

    @property
    def layer_offset(self) -> int:
        """From a token's row in one layer to its row in the next."""
        return 2 * self.layout.page_tokens

    def key_rows(self, slots: Tensor) -> Tensor:
        """The rows of layer 0's keys at ``slots`` (page * page_tokens + offset in the page)."""
        page_tokens = self.layout.page_tokens
        page_rows = self.layout.num_layers * self.layer_offset
        return slots // page_tokens * page_rows + slots % page_tokens

    def layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values, each a strided ``[num_pages, page_tokens, num_kv_heads, head_dim]``."""
        return self.pages[:, layer, 0], self.pages[:, layer, 1]

    def store(self, layer: int, key_rows: Tensor, keys: Tensor, values: Tensor) -> None:
        """Write ``[num_tokens, num_kv_heads, head_dim]`` each; ``key_rows`` are layer 0's."""
        rows = key_rows + layer * self.layer_offset
        self.rows.index_copy_(0, rows, keys)
        self.rows.index_copy_(0, rows + self.value_offset, values)

    def gather(self, layer: int, key_rows: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, each ``[len(key_rows), num_kv_heads, head_dim]``, as ``store`` takes.

        They are the two halves of ``out``, which is as ``gathered`` made it.
        """
        rows = key_rows + layer * self.layer_offset
        keys, values = out
        torch.index_select(self.rows, 0, rows, out=keys)
        torch.index_select(self.rows, 0, rows + self.value_offset, out=values)
        return keys, values

    def gathered(self, num_rows: int) -> Tensor:
        """Room for ``gather``. One for all layers: fresh memory for each would fault at each."""
        return self.rows.new_empty(2, num_rows, *self.rows.shape[1:])

    def copy_page(self, source: int, target: int) -> None:
        self.pages[target].copy_(self.pages[source])

    def read(self, pages: Sequence[int], first_layer: int, num_layers: int) -> list[memoryview]:
        """The bytes of layers [first_layer, first_layer + num_layers) of ``pages``, in order.

        Views of the pool on a CPU, a copy in pinned memory on a GPU.
        """
        return self._bytes.read(pages, first_layer, num_layers)

    def write(
        self, pages: Sequence[int], first_layer: int, num_layers: int, data: memoryview
    ) -> None:
        """Place ``data``, laid out as ``read`` gives it; complete on return.

        Raises ValueError, with nothing written, when ``data`` is not of exactly that size.
        """
        expected = len(pages) * num_layers * self.layout.layer_bytes
        if data.nbytes != expected:
            raise ValueError(f"{data.nbytes} bytes for pages and layers of {expected} bytes")
        self._bytes.write(pages, first_layer, num_layers, data)
