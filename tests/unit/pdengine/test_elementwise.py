"""Our kernels do what torch does, in both dtypes and for any number of rows."""

import pytest
import torch

from pdengine.elementwise import CpuElementwise, TorchElementwise, elementwise_for

EPSILON = 1e-5
DTYPES = [torch.float32, torch.bfloat16]
CPU = torch.device("cpu")


def drawn(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (scale * torch.randn(*shape, generator=generator)).to(dtype)


def assert_alike(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """In bfloat16 to one unit in the last place: sums run in another order."""
    assert ours.dtype == theirs.dtype
    rtol = 1e-5 if ours.dtype == torch.float32 else 8e-3
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=1e-6)


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    dtype: torch.dtype = request.param
    return dtype


@pytest.fixture
def ours(dtype: torch.dtype) -> CpuElementwise:
    return CpuElementwise(dtype, EPSILON)


theirs = TorchElementwise(EPSILON)


@pytest.mark.parametrize("num_rows", [0, 1, 3, 200])
def test_norm(ours: CpuElementwise, dtype: torch.dtype, num_rows: int) -> None:
    x, weight = drawn(num_rows, 576, dtype=dtype, scale=3), drawn(576, dtype=dtype)
    assert_alike(ours.norm(x, weight), theirs.norm(x, weight))


def test_norm_of_heads_that_lie_in_a_wider_tensor(ours: CpuElementwise, dtype: torch.dtype) -> None:
    heads, weight = drawn(5, 9, 64, dtype=dtype)[:, 2:5], drawn(64, dtype=dtype)
    before = heads.clone()
    assert_alike(ours.norm(heads, weight), theirs.norm(heads, weight))
    assert torch.equal(heads, before)


@pytest.mark.parametrize("num_rows", [0, 1, 200])
def test_add_and_norm(ours: CpuElementwise, dtype: torch.dtype, num_rows: int) -> None:
    x, delta = drawn(num_rows, 192, dtype=dtype), drawn(num_rows, 192, dtype=dtype, scale=2)
    weight = drawn(192, dtype=dtype)
    expected = theirs.add_and_norm(x, delta, weight)
    for one, other in zip(ours.add_and_norm(x.clone(), delta, weight), expected, strict=True):
        assert_alike(one, other)


@pytest.mark.parametrize("num_rows", [0, 1, 200])
def test_rotate(ours: CpuElementwise, dtype: torch.dtype, num_rows: int) -> None:
    heads, angles = drawn(num_rows, 15, 64, dtype=dtype), drawn(num_rows, 1, 32, dtype=dtype)
    cos, sin = angles.cos(), angles.sin()
    expected = theirs.rotate(heads, 12, cos, sin)
    assert_alike(ours.rotate(heads.clone(), 12, cos, sin), expected)


@pytest.mark.parametrize("num_rows", [0, 1, 200])
def test_gated(ours: CpuElementwise, dtype: torch.dtype, num_rows: int) -> None:
    gate_up = drawn(num_rows, 2 * 160, dtype=dtype, scale=10)
    assert_alike(ours.gated(gate_up), theirs.gated(gate_up))
    gate_up[:, :160] = torch.tensor([-1e30, -100.0, 0.0, 100.0]).repeat(40)
    assert_alike(ours.gated(gate_up), theirs.gated(gate_up))


@pytest.mark.parametrize(
    ("dtype", "head_dim", "dims"),
    [(torch.float16, 64, (576,)), (torch.float32, 80, (576,)), (torch.float32, 64, (576, 1000))],
)
def test_other_shapes_and_dtypes_are_torchs(
    dtype: torch.dtype, head_dim: int, dims: tuple[int, ...]
) -> None:
    assert isinstance(elementwise_for(CPU, dtype, EPSILON, head_dim, *dims), TorchElementwise)


def test_this_machine_has_the_kernels() -> None:
    assert isinstance(elementwise_for(CPU, torch.float32, EPSILON, 64, 576, 1536), CpuElementwise)
