"""One running cluster per dtype and page size, shared by the tests that do no harm to it."""

import time
from collections.abc import Iterator
from itertools import count

import pytest

from serving import Cluster, running_cluster

# Small steps, so that a prompt of a few hundred tokens is computed in several chunks.
SMALL_STEPS = ("--set", "engine.step_tokens=64")
SMALL_POOL = ("--set", "engine.kv_memory_bytes=268435456")
# In bfloat16 a token may hang on where chunks end, which with a taper depends on the path.
SAME_CHUNKS = ("--set", "transfer.taper=false")


@pytest.fixture(scope="session")
def float32_cluster() -> Iterator[Cluster]:
    with running_cluster("--dtype", "float32", *SMALL_STEPS, *SMALL_POOL) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def bfloat16_cluster() -> Iterator[Cluster]:
    with running_cluster("--dtype", "bfloat16", *SMALL_STEPS, *SMALL_POOL, *SAME_CHUNKS) as cluster:
        yield cluster


@pytest.fixture
def salts() -> Iterator[str]:
    """Fresh cache salts: a prefix hit never stands in for a transfer."""
    return (f"{time.time_ns()}-{number}" for number in count())
