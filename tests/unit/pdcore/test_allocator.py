"""Freed buffers are used again instead of being mapped anew. In processes of their own."""

import platform
import subprocess
import sys

import pytest

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
