"""Every backend against float64, on ragged contexts in permuted pages between poisoned memory."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

import fake_flashinfer
from attention_cases import DECODE, MIXED, PREFILL, AttentionCase, Shape
from pdcore.errors import ConfigError
from pdengine.attention import (
    BACKENDS,
    AttentionBackend,
    backend_name,
    build_backend,
)
from pdengine.attention.flashinfer import FlashInfer
from pdengine.attention.schedules import DEFAULT_SCHEDULE, FIXED, SCHEDULES

LENGTHS = {"decode": DECODE, "prefill": PREFILL, "mixed": MIXED}


def _cpu_backend(schedule: str, case: AttentionCase) -> AttentionBackend:
    return build_backend("cpu", case.config, case.kv, schedule)


BUILDERS: dict[str, Callable[[AttentionCase], AttentionBackend]] = {
    "cpu": lambda case: build_backend("cpu", case.config, case.kv),
    **{f"cpu {name}": partial(_cpu_backend, name) for name in FIXED if name != DEFAULT_SCHEDULE},
    "torch": lambda case: build_backend("torch", case.config, case.kv),
    # The kernels run in tests/gpu; what they are asked to do is checked here.
    "flashinfer": lambda case: FlashInfer(fake_flashinfer, case.config, case.kv),
}

SHAPES = {
    **{f"page{n}": Shape(page_tokens=n) for n in (8, 16, 64)},
    **{f"head{n}": Shape(head_dim=n) for n in (64, 80, 128)},
    **{f"gqa{n}": Shape(num_heads=2 * n, num_kv_heads=2) for n in range(1, 9)},
    **{f"window{n}": Shape(window=n) for n in (1, 16, 37)},
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_every_backend_is_tested() -> None:
    assert {name.split()[0] for name in BUILDERS} == BACKENDS.keys()


@pytest.mark.parametrize("backend", BUILDERS)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_float64(backend: str, lengths: str, shape: str) -> None:
    case = AttentionCase(SHAPES[shape], LENGTHS[lengths])
    out = case.run(BUILDERS[backend](case))
    torch.testing.assert_close(out.double(), case.expected(), rtol=1e-4, atol=1e-5)
    assert case.stored()


@pytest.mark.parametrize("backend", BUILDERS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_close(backend: str, dtype: str) -> None:
    case = AttentionCase(Shape(dtype=dtype), MIXED)
    if backend.startswith("cpu") and dtype == "float16":
        with pytest.raises(ConfigError, match="dtype is float16; it takes float32 or bfloat16"):
            BUILDERS[backend](case)
        return
    out = case.run(BUILDERS[backend](case))
    torch.testing.assert_close(out.double(), case.expected(), rtol=0.03, atol=0.02)


def test_auto_is_our_kernels_on_a_cpu() -> None:
    case = AttentionCase(Shape(), DECODE)
    assert backend_name("auto", case.config, case.kv) == "cpu"


def test_auto_is_torch_where_the_kernels_cannot_serve(caplog: pytest.LogCaptureFixture) -> None:
    case = AttentionCase(Shape(head_dim=40), DECODE)
    assert backend_name("auto", case.config, case.kv) == "torch"
    assert "the model's head_dim is 40; it takes multiples of 16 up to 256" in caplog.text


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    case = AttentionCase(Shape(), DECODE)
    with pytest.raises(ConfigError, match="'flash'; one of auto, flashinfer, cpu, torch"):
        build_backend("flash", case.config, case.kv)


def test_an_unknown_schedule_is_refused_with_the_known_ones() -> None:
    case = AttentionCase(Shape(), DECODE)
    with pytest.raises(
        ConfigError, match="'rows'; one of per_row, split, workqueue, padded, adaptive"
    ):
        build_backend("cpu", case.config, case.kv, "rows")


LONG = ((1500, 1), (3, 1), (700, 1), (2047, 1))


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_long_contexts_in_parts(schedule: str, num_threads: int) -> None:
    """Long enough for every schedule that cuts a context to cut it."""
    torch.set_num_threads(num_threads)
    case = AttentionCase(Shape(window=900), LONG)
    out = case.run(_cpu_backend(schedule, case))
    torch.testing.assert_close(out.double(), case.expected(), rtol=1e-4, atol=1e-5)


def test_what_adaptive_measures_is_kept_and_what_is_damaged_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PDSPAN_CACHE", str(tmp_path))
    case = AttentionCase(Shape(), DECODE)
    before = case.kv.pages.view(torch.int32).clone()
    _cpu_backend("adaptive", case)
    assert torch.equal(case.kv.pages.view(torch.int32), before), "measuring writes nothing"
    (kept,) = tmp_path.glob("attention/*.json")
    costs = kept.read_text()
    assert all(value >= 0 for value in json.loads(costs).values())
    _cpu_backend("adaptive", case)
    assert kept.read_text() == costs
    kept.write_text('{"token_s": -1')
    _cpu_backend("adaptive", case)
    assert json.loads(kept.read_text()).keys() == json.loads(costs).keys()


def test_flashinfer_without_a_gpu_is_refused_by_its_reason() -> None:
    case = AttentionCase(Shape(), DECODE)
    with pytest.raises(ConfigError, match="needs an NVIDIA GPU and the engine's device is cpu"):
        build_backend("flashinfer", case.config, case.kv)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_query_that_is_no_number_gives_no_number_and_harms_no_other(
    lengths: str, dtype: str
) -> None:
    """Whoever samples must see that a model has failed, not a token that looks like any other."""
    case = AttentionCase(Shape(dtype=dtype), LENGTHS[lengths])
    expected = case.expected()
    case.q[:, 0] = torch.inf
    out = case.run(build_backend("cpu", case.config, case.kv))
    assert out[:, 0].isnan().flatten(1).any(1).all()
    rtol, atol = (1e-4, 1e-5) if dtype == "float32" else (0.03, 0.02)
    torch.testing.assert_close(out[:, 1:].double(), expected[:, 1:], rtol=rtol, atol=atol)
