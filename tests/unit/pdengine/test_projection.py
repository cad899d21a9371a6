"""Products of a few rows against float64, whatever the number of rows, with and without a bias."""

import re

import pytest
import torch

from pdcore.errors import ConfigError
from pdengine.kernels.linear import Int8, few_rows, few_rows_int8, most_rows, obstacle
from pdengine.projection import projection

TOLERANCES = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (8e-3, 1e-3)}


def drawn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("num_rows", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 33])
@pytest.mark.parametrize(("num_out", "num_in"), [(4, 16), (60, 64), (192, 576), (576, 1536)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_few_rows_equal_float64(
    dtype: torch.dtype, num_rows: int, num_out: int, num_in: int, has_bias: bool
) -> None:
    x, weight = drawn(num_rows, num_in, dtype=dtype), drawn(num_out, num_in, dtype=dtype)
    bias = drawn(num_out, dtype=dtype) if has_bias else None
    expected = x.double() @ weight.double().T
    expected += 0 if bias is None else bias.double()
    rtol, atol = TOLERANCES[dtype]
    out = few_rows(x, weight, bias)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=rtol, atol=atol * num_in**0.5)


def test_a_slice_of_rows_is_read_as_it_lies() -> None:
    x, weight = drawn(8, 128, dtype=torch.float32)[::2, :64], drawn(8, 64, dtype=torch.float32)
    torch.testing.assert_close(few_rows(x, weight, None), x @ weight.T)


@pytest.mark.parametrize("num_rows", [0, 1, 7, 200])
def test_a_projection_is_the_same_by_either_way(num_rows: int) -> None:
    x, weight = drawn(num_rows, 64, dtype=torch.float32), drawn(96, 64, dtype=torch.float32)
    bias = drawn(96, dtype=torch.float32)
    expected = torch.nn.functional.linear(x, weight, bias)
    torch.testing.assert_close(projection(weight, bias)(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("has_pairs", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_who_computes_a_product_follows_from_dtype_and_instructions_alone(
    dtype: torch.dtype, has_pairs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial would let nodes that were busy at their start round differently."""
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": has_pairs})
    expected = 16 if dtype is torch.float32 else 32 if has_pairs else 64
    assert most_rows(dtype) == expected


UNFIT = [
    (torch.zeros(6, 64), r"its shape \(6, 64\) is no multiple of \(4, 16\)"),
    (torch.zeros(8, 40), r"its shape \(8, 40\)"),
    (torch.zeros(8, 64, dtype=torch.float16), "it is torch.float16, not one of torch.float32"),
    (torch.zeros(64, 8).T, "its shape"),
    (torch.zeros(8, 64, device="meta"), "it is on meta, not on a CPU"),
]


@pytest.mark.parametrize(("weight", "reason"), UNFIT[:4])
def test_what_the_kernel_cannot_take_goes_to_torch(weight: torch.Tensor, reason: str) -> None:
    assert re.search(reason, obstacle(weight) or "")
    x = torch.ones(2, weight.shape[1], dtype=weight.dtype)
    assert torch.equal(projection(weight)(x), torch.nn.functional.linear(x, weight))


@pytest.mark.parametrize(("weight", "reason"), UNFIT)
def test_int8_of_what_has_no_kernel_is_refused(weight: torch.Tensor, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"engine.weights is 'int8', but .*: {reason}"):
        projection(weight, as_int8=True)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("num_rows", [0, 1, 3, 4, 9, 65])
@pytest.mark.parametrize("has_bias", [False, True])
def test_int8_is_the_product_with_the_rounded_weight(
    dtype: torch.dtype, num_rows: int, has_bias: bool
) -> None:
    x, weight = drawn(num_rows, 192, dtype=dtype), drawn(60, 192, dtype=dtype)
    bias = drawn(60, dtype=dtype) if has_bias else None
    rounded = Int8.of(weight)
    expected = x.double() @ (rounded.values.double() * rounded.scales.double()[:, None]).T
    expected += 0 if bias is None else bias.double()
    rtol, atol = TOLERANCES[dtype]
    for out in (few_rows_int8(x, rounded, bias), projection(weight, bias, as_int8=True)(x)):
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), expected, rtol=rtol, atol=10 * atol * 192**0.5)


def test_rounding_to_int8_is_off_by_half_a_step_at_most() -> None:
    weight = drawn(8, 64, dtype=torch.float32)
    weight[3] = 0.0
    rounded = Int8.of(weight)
    steps = (rounded.restored(torch.float32) - weight).abs() / rounded.scales[:, None]
    assert steps.max() <= 0.5001
    assert torch.equal(rounded.restored(torch.float32)[3], weight[3])
