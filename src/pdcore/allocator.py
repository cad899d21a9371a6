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
MAPPED_BYTES = 32 * 2**20  # from this size on a buffer is a mapping of its own; the most allowed


def keep_freed_memory() -> bool:
    """For this whole process. False: its allocator is not glibc's, and nothing has changed."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = {_M_TRIM_THRESHOLD: KEPT_BYTES, _M_MMAP_THRESHOLD: MAPPED_BYTES, _M_ARENA_MAX: 1}
    return all(mallopt(option, value) == 1 for option, value in options.items())
