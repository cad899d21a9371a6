"""What a page holds, and which field of two layouts differs."""

from dataclasses import replace

import pytest

from pdcore.kv_layout import KvLayout

SMOLLM2 = KvLayout("smollm2", 30, 3, 64, 16, "bfloat16")


def test_bytes_of_a_known_model() -> None:
    assert SMOLLM2.layer_bytes == 12 * 1024
    assert SMOLLM2.page_bytes == 360 * 1024


@pytest.mark.parametrize(("dtype", "factor"), [("bfloat16", 1), ("float16", 1), ("float32", 2)])
def test_bytes_follow_the_dtype(dtype: str, factor: int) -> None:
    assert replace(SMOLLM2, dtype=dtype).page_bytes == factor * SMOLLM2.page_bytes


@pytest.mark.parametrize(
    ("num_tokens", "num_pages"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (32, 2), (33, 3)]
)
def test_pages_for_tokens(num_tokens: int, num_pages: int) -> None:
    assert SMOLLM2.num_pages(num_tokens) == num_pages


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "other"),
        ("num_layers", 31),
        ("num_kv_heads", 4),
        ("head_dim", 128),
        ("page_tokens", 64),
        ("dtype", "float32"),
    ],
)
def test_the_field_that_differs_is_named_with_both_values(field: str, value: object) -> None:
    other = replace(SMOLLM2, **{field: value})
    expected = f"{field}: {getattr(SMOLLM2, field)} here, {value} there"
    assert SMOLLM2.difference(other) == expected


def test_equal_layouts_do_not_differ() -> None:
    assert SMOLLM2.difference(replace(SMOLLM2)) is None
