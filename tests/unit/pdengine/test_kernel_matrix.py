"""Attention kernels over their whole space: every pair of values here, all of it by
``make test-kernels``."""

from itertools import combinations, product
from typing import Any

import pytest
import torch

from attention_cases import MIXED, PREFILL, AttentionCase, Shape
from pairwise import pairs_of, pairwise
from pdengine.attention import build_backend
from pdengine.attention.schedules import SCHEDULES

KERNELS = ("torch", *SCHEDULES)
DTYPES = ("bfloat16", "float32")
HEAD_DIMS = (64, 80, 96, 128, 256)
GROUPS = tuple(range(1, 9))
PAGE_TOKENS = (8, 16, 32, 64, 128)
LENGTHS = {
    "single": ((0, 1),),
    "ragged": MIXED,
    "prefill": PREFILL,
    "32k": ((32_767, 1), (3, 1)),
    "chunk at 4k": ((4_000, 33),),
}
WINDOWS = (1, 37, 900)  # of one layer; the other has none
KV_HEADS = (1, 3)
AXES = (KERNELS, DTYPES, HEAD_DIMS, GROUPS, PAGE_TOKENS, tuple(LENGTHS), WINDOWS, KV_HEADS)
TOLERANCES = {"float32": (1e-4, 1e-5), "bfloat16": (0.03, 0.02)}
SAMPLE = pairwise(AXES)


@pytest.fixture(autouse=True)
def two_threads() -> None:
    torch.set_num_threads(2)


def test_the_sample_has_every_pair() -> None:
    wanted = {
        pair
        for (i, first), (j, second) in combinations(enumerate(AXES), 2)
        for pair in product([(i, value) for value in first], [(j, value) for value in second])
    }
    assert wanted == {pair for combination in SAMPLE for pair in pairs_of(combination)}


@pytest.mark.parametrize("combination", SAMPLE, ids=str)
def test_a_sample_equals_float64(combination: tuple[Any, ...]) -> None:
    check(*combination)


@pytest.mark.matrix
@pytest.mark.parametrize("combination", list(product(*AXES[:-2])), ids=str)
def test_all_of_it_equals_float64(combination: tuple[Any, ...]) -> None:
    """Windows and numbers of KV heads, which no loop of a kernel is shaped by, go round."""
    place = sum(axis.index(value) for axis, value in zip(AXES, combination, strict=False))
    check(*combination, WINDOWS[place % 3], KV_HEADS[place % 2])


def check(
    kernel: str,
    dtype: str,
    head_dim: int,
    groups: int,
    page_tokens: int,
    lengths: str,
    window: int,
    num_kv_heads: int,
) -> None:
    num_heads = groups * num_kv_heads
    shape = Shape(page_tokens, head_dim, num_heads, num_kv_heads, window, dtype)
    case = AttentionCase(shape, LENGTHS[lengths])
    if kernel == "torch":
        backend = build_backend("torch", case.config, case.kv)
    else:
        backend = build_backend("cpu", case.config, case.kv, kernel)
    rtol, atol = TOLERANCES[dtype]
    out = case.run(backend)
    torch.testing.assert_close(out.double(), case.expected(), rtol=rtol, atol=atol)
    assert case.stored()
