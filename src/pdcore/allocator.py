"""Memory that was freed stays with the process, ready for the next message of the same size.

A frame of pages is copied through buffers of a few MiB on its way through gRPC. glibc gives such
buffers back to the kernel as soon as they are free, and the kernel has to map and clear each of
them again: at a sender that takes more time than all the copying. And it gives every thread an
arena of its own, whose buffers no other thread reuses: those pass from gRPC's threads to ours, so
with one arena for all there are fewer of them, and they are warm.
"""

import ctypes

# malloc.h of glibc; mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
KEPT_BYTES = 128 * 2**20  # so much free memory at the end of the heap is given back
_MADV_HUGEPAGE = 14  # madvise(2)
HUGE_PAGE_BYTES = 2 * 2**20
MAPPED_BYTES = 32 * 2**20  # from this size on a buffer is a mapping of its own; the most allowed


def keep_freed_memory() -> bool:
    """For this whole process. False: its allocator is not glibc's, and nothing has changed."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = {_M_TRIM_THRESHOLD: KEPT_BYTES, _M_MMAP_THRESHOLD: MAPPED_BYTES, _M_ARENA_MAX: 1}
    return all(mallopt(option, value) == 1 for option, value in options.items())


def prefer_huge_pages(address: int, num_bytes: int) -> bool:
    """For memory that is not touched yet, and read all over later: fewer mappings to look up.
    What it brings here was not measured apart. False: the kernel does not offer them."""
    first = -(-address // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    length = (address + num_bytes - first) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None or length <= 0:
        return False
    place, size = ctypes.c_void_p(first), ctypes.c_size_t(length)
    return bool(madvise(place, size, _MADV_HUGEPAGE) == 0)
