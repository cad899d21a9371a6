"""Products of a few rows against float64, whatever the number of rows, with and without a bias."""

import pytest
import torch

from pdengine.kernels.linear import can_multiply, few_rows
from pdengine.projection import projection

TOLERANCES = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (8e-3, 1e-3)}


def drawn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 5, 8, 9, 33])
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


@pytest.mark.parametrize("num_rows", [1, 7, 200])
def test_a_projection_is_the_same_by_either_way(num_rows: int) -> None:
    x, weight = drawn(num_rows, 64, dtype=torch.float32), drawn(96, 64, dtype=torch.float32)
    bias = drawn(96, dtype=torch.float32)
    expected = torch.nn.functional.linear(x, weight, bias)
    torch.testing.assert_close(projection(weight, bias)(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "weight",
    [
        torch.zeros(6, 64),  # outputs that are no multiple of 4
        torch.zeros(8, 40),  # inputs that are no multiple of 16
        torch.zeros(8, 64, dtype=torch.float16),
        torch.zeros(64, 8).T,
    ],
)
def test_what_the_kernel_cannot_take_goes_to_torch(weight: torch.Tensor) -> None:
    assert not can_multiply(weight)
    x = torch.ones(2, weight.shape[1], dtype=weight.dtype)
    assert torch.equal(projection(weight)(x), torch.nn.functional.linear(x, weight))
