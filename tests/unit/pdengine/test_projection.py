"""Products against float64, whatever the number of rows, with and without a bias."""

import re

import pytest
import torch

from pdcore.errors import ConfigError
from pdengine.kernels.arena import Arena
from pdengine.kernels.linear import Int8, Packed, obstacle
from pdengine.projection import Projection, projection

TOLERANCES = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (8e-3, 1e-3)}
NUM_ROWS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 33, 200]
SHAPES = [(4, 16), (60, 64), (16, 2), (192, 576), (81, 98), (576, 1536)]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def drawn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype)


def packed(
    weight: torch.Tensor, bias: torch.Tensor | None = None, *, as_int8: bool = False
) -> Projection:
    result = projection(weight, bias, Arena(), as_int8=as_int8)
    assert isinstance(result, Packed)
    return result


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("num_rows", NUM_ROWS)
@pytest.mark.parametrize(("num_out", "num_in"), SHAPES)
@pytest.mark.parametrize("has_bias", [False, True])
def test_equals_float64(
    dtype: torch.dtype, num_rows: int, num_out: int, num_in: int, has_bias: bool
) -> None:
    x, weight = drawn(num_rows, num_in, dtype=dtype), drawn(num_out, num_in, dtype=dtype)
    bias = drawn(num_out, dtype=dtype) if has_bias else None
    expected = x.double() @ weight.double().T
    expected += 0 if bias is None else bias.double()
    rtol, atol = TOLERANCES[dtype]
    out = packed(weight, bias)(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=rtol, atol=atol * num_in**0.5)


@pytest.mark.parametrize("as_int8", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_row_is_the_same_whatever_rows_are_beside_it(dtype: torch.dtype, as_int8: bool) -> None:
    """A prompt in other chunks, or in another batch, rounds alike."""
    x, weight = drawn(40, 128, dtype=dtype), drawn(112, 128, dtype=dtype)
    multiply = packed(weight, as_int8=as_int8)
    together = multiply(x)
    for first, last in [(0, 1), (1, 3), (3, 8), (8, 40), (5, 29)]:
        assert torch.equal(multiply(x[first:last]), together[first:last])


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_any_number_of_threads_shares_the_panels(num_threads: int) -> None:
    x, weight = drawn(3, 64, dtype=torch.float32), drawn(72, 64, dtype=torch.float32)
    multiply = packed(weight)
    alone = multiply(x)
    torch.set_num_threads(num_threads)
    assert torch.equal(multiply(x), alone)


def test_a_slice_of_rows_is_read_as_it_lies() -> None:
    x, weight = drawn(8, 128, dtype=torch.float32)[::2, :64], drawn(8, 64, dtype=torch.float32)
    torch.testing.assert_close(packed(weight)(x), x @ weight.T)


def test_nothing_is_written_past_the_last_column() -> None:
    """33 columns out are two panels and one column more."""
    x, weight = drawn(7, 64, dtype=torch.bfloat16), drawn(33, 64, dtype=torch.bfloat16)
    out = packed(weight)(x)
    alone = [packed(weight[i : i + 1])(x) for i in range(33)]
    assert torch.equal(out, torch.cat(alone, 1))


UNFIT = [
    (torch.zeros(8, 41), r"its shape is \(8, 41\), with an odd number of columns"),
    (torch.zeros(8, 64, dtype=torch.float16), "it is torch.float16, not one of torch.float32"),
    (torch.zeros(8, 64, device="meta"), "it is on meta, not on a CPU"),
]


@pytest.mark.parametrize(("weight", "reason"), UNFIT[:2])
def test_what_the_kernel_cannot_take_goes_to_torch(weight: torch.Tensor, reason: str) -> None:
    assert re.search(reason, obstacle(weight) or "")
    x = torch.ones(2, weight.shape[1], dtype=weight.dtype)
    expected = torch.nn.functional.linear(x, weight)
    assert torch.equal(projection(weight, None, Arena())(x), expected)


@pytest.mark.parametrize(("weight", "reason"), UNFIT)
def test_int8_of_what_has_no_kernel_is_refused(weight: torch.Tensor, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"engine.weights is 'int8', but .*: {reason}"):
        projection(weight, None, Arena(), as_int8=True)


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
    out = packed(weight, bias, as_int8=True)(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), expected, rtol=rtol, atol=10 * atol * 192**0.5)


def test_rounding_to_int8_is_off_by_half_a_step_at_most() -> None:
    weight = drawn(8, 64, dtype=torch.float32)
    weight[3] = 0.0
    rounded = Int8.of(weight)
    restored = rounded.values * rounded.scales[:, None]
    steps = (restored - weight).abs() / rounded.scales[:, None]
    assert steps.max() <= 0.5001
    assert torch.equal(restored[3], weight[3])
