"""The KV cache as bytes: pages leave for another node, or arrive from one.

Two ways with one meaning: ``HostBytes`` hands out views of a pool in main memory, ``StagedBytes``
moves pages of a GPU's pool through pinned memory on a stream of its own, beside the computation.
Neither knows who may touch which page.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pdcore.kv_layout import KvLayout


class PageBytes(Protocol):
    """``pages`` in the order given; of each, layers [first_layer, first_layer + num_layers)."""

    def read(self, pages: Sequence[int], first_layer: int, num_layers: int) -> list[memoryview]:
        """Their bytes in order, as one or more stretches."""

    def write(
        self, pages: Sequence[int], first_layer: int, num_layers: int, data: memoryview
    ) -> None:
        """Place ``data``, which has exactly their number of bytes; complete on return."""


class HostBytes:
    """Views, not copies: they show a page as it is when they are looked at."""

    def __init__(self, layout: KvLayout, pool: Tensor) -> None:
        self._layout = layout
        self._array = pool.view(-1).view(torch.uint8).numpy()
        self._memory = self._array.data

    def read(self, pages: Sequence[int], first_layer: int, num_layers: int) -> list[memoryview]:
        stretches = _stretches(self._layout, pages, first_layer, num_layers)
        return [self._memory[start:end] for start, end in stretches]

    def write(
        self, pages: Sequence[int], first_layer: int, num_layers: int, data: memoryview
    ) -> None:
        # numpy copies without the interpreter's lock, a slice of a memoryview does not.
        source = np.frombuffer(data, dtype=np.uint8)
        taken = 0
        for start, end in _stretches(self._layout, pages, first_layer, num_layers):
            self._array[start:end] = source[taken : taken + end - start]
            taken += end - start


class StagedBytes:
    """One gather or scatter kernel and one copy a call, whatever the number of pages."""

    def __init__(self, pool: Tensor) -> None:
        self._pool = pool
        self._stream = torch.cuda.Stream(pool.device)  # type: ignore[no-untyped-call]

    def read(self, pages: Sequence[int], first_layer: int, num_layers: int) -> list[memoryview]:
        with torch.cuda.stream(self._stream):
            gathered = self._pool[self._page_index(pages), first_layer : first_layer + num_layers]
            flat = gathered.flatten().view(torch.uint8)
            staging = torch.empty(flat.shape, dtype=torch.uint8, pin_memory=True)
            staging.copy_(flat, non_blocking=True)
        self._stream.synchronize()
        return [staging.numpy().data]

    def write(
        self, pages: Sequence[int], first_layer: int, num_layers: int, data: memoryview
    ) -> None:
        staging = torch.empty(data.nbytes, dtype=torch.uint8, pin_memory=True)
        staging.numpy()[:] = np.frombuffer(data, dtype=np.uint8)
        with torch.cuda.stream(self._stream):
            values = staging.to(self._pool.device, non_blocking=True).view(self._pool.dtype)
            shape = (len(pages), num_layers, *self._pool.shape[2:])
            layers = self._pool[:, first_layer : first_layer + num_layers]
            layers.index_copy_(0, self._page_index(pages), values.view(shape))
        self._stream.synchronize()

    def _page_index(self, pages: Sequence[int]) -> Tensor:
        return torch.tensor(pages, dtype=torch.int64, device=self._pool.device)


def _stretches(
    layout: KvLayout, pages: Sequence[int], first_layer: int, num_layers: int
) -> Iterator[tuple[int, int]]:
    """[start, end) in bytes of the pool; consecutive pages join where all layers are meant."""
    length = num_layers * layout.layer_bytes
    starts = [page * layout.page_bytes + first_layer * layout.layer_bytes for page in pages]
    first = 0
    for i in range(1, len(starts) + 1):
        if i == len(starts) or starts[i] != starts[i - 1] + length:
            yield starts[first], starts[i - 1] + length
            first = i
