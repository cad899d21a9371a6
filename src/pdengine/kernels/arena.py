"""Memory for matrices that a step reads from end to end: side by side, in huge pages where the
kernel offers them. In pages of 4 KiB a processor looks up an address, and its prefetching stops,
every 4 KiB."""

import torch
from torch import Tensor

from pdcore.allocator import HUGE_PAGE_BYTES, prefer_huge_pages

ALIGNED_BYTES = 64
STRETCH_BYTES = 64 * 2**20


class Arena:
    """Gives memory out, and never takes it back; it lives as long as what it gave."""

    def __init__(self) -> None:
        self._stretch = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def take(self, num_elements: int, dtype: torch.dtype) -> Tensor:
        """Not filled; ``[num_elements]`` on the CPU."""
        num_bytes = num_elements * dtype.itemsize
        if self._used + num_bytes > len(self._stretch):
            self._stretch = _stretch(max(num_bytes, STRETCH_BYTES))
            self._used = 0
        taken = self._stretch[self._used : self._used + num_bytes].view(dtype)
        self._used += -(-num_bytes // ALIGNED_BYTES) * ALIGNED_BYTES
        return taken


def _stretch(num_bytes: int) -> Tensor:
    """Begins at a huge page."""
    stretch = torch.empty(num_bytes + HUGE_PAGE_BYTES, dtype=torch.uint8)
    prefer_huge_pages(stretch.data_ptr(), stretch.nbytes)
    first = -stretch.data_ptr() % HUGE_PAGE_BYTES
    return stretch[first : first + num_bytes]
