"""Freed buffers are used again instead of being mapped anew. In processes of their own."""

import ctypes
import mmap
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pdcore.allocator import HUGE_PAGE_BYTES, prefer_huge_pages

PROGRAM = """
import resource, sys
from pdcore.allocator import keep_freed_memory
if "keep" in sys.argv:
    assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def churn(num):
    for _ in range(num):
        buffers = [bytes(2**21) + b"x" for _ in range(8)]
        del buffers
churn(10)
before = faults()
churn(50)
print(faults() - before)
"""


def page_faults(*arguments: str) -> int:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_freed_memory_is_not_faulted_in_again() -> None:
    assert page_faults("keep") < page_faults() / 10


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text(), reason="no huge pages here"
)
def test_huge_pages_are_asked_for_where_they_fit() -> None:
    with mmap.mmap(-1, 8 * HUGE_PAGE_BYTES) as memory:
        view = ctypes.c_char.from_buffer(memory)
        address = ctypes.addressof(view)
        assert prefer_huge_pages(address, len(memory))
        assert not prefer_huge_pages(address, HUGE_PAGE_BYTES - 1)
        memory[:] = bytes(len(memory))  # all of it is still there
        del view
