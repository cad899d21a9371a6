"""FlashInfer on a GPU against float64 and against the torch reference; pages through pinned memory.

What runs on a CPU too is tested there: these tests are about the kernels and the copies.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attention_cases import DECODE, MIXED, PREFILL, AttentionCase, Shape
from model_rig import ModelRig
from pdcore.kv_layout import KvLayout
from pdengine.attention import backend_name, build_backend
from pdengine.kv_cache import KvCache
from tiny_checkpoints import TinyModel

pytestmark = pytest.mark.gpu

LENGTHS = {"decode": DECODE, "prefill": PREFILL, "mixed": MIXED}

SHAPES = {
    "page16": Shape(),
    "page64": Shape(page_tokens=64),
    "head128": Shape(head_dim=128),
    "gqa1": Shape(num_heads=4, num_kv_heads=4),
    "gqa5": Shape(num_heads=10),
    "gqa8": Shape(num_heads=16),
    "window1": Shape(window=1),
    "window37": Shape(window=37),
}


@pytest.fixture(autouse=True)
def flashinfer() -> None:
    pytest.importorskip("flashinfer", reason="needs the flashinfer package")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_equals_float64_and_the_reference(shape: str, lengths: str, dtype: str) -> None:
    case = AttentionCase(replace(SHAPES[shape], dtype=dtype), LENGTHS[lengths], "cuda")
    out = case.run(build_backend("flashinfer", case.config, case.kv))
    assert case.stored()
    torch.testing.assert_close(out.double(), case.expected(), rtol=0.03, atol=0.02)
    reference = case.run(build_backend("torch", case.config, case.kv))
    torch.testing.assert_close(out, reference, rtol=0.03, atol=0.02)


def test_auto_is_flashinfer_where_it_fits() -> None:
    fits = AttentionCase(Shape(dtype="bfloat16"), DECODE, "cuda")
    assert backend_name("auto", fits.config, fits.kv) == "flashinfer"
    too_wide = AttentionCase(Shape(dtype="float32"), DECODE, "cuda")
    assert backend_name("auto", too_wide.config, too_wide.kv) == "torch"


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_logits_are_close_to_the_reference(family: str, tmp_path: Path) -> None:
    TinyModel(family, options={"head_dim": 64}).save(tmp_path)
    tokens = list(range(70))
    logits = []
    for attention in ("torch", "flashinfer"):
        rig = ModelRig(tmp_path, dtype="bfloat16", device_name="cuda", attention=attention)
        logits.append(rig.in_chunks(rig.sequence(tokens), [40, 27, 1, 1, 1]))
    expected, ours = logits
    assert float((ours - expected).abs().max()) <= 0.03 * float(expected.abs().max())


def test_pages_move_between_two_caches() -> None:
    layout = KvLayout("m", 3, 2, 64, 16, "bfloat16")
    source, target = (KvCache(layout, 9, torch.device("cuda")) for _ in range(2))
    source.pages.copy_(torch.randn(source.pages.shape))
    data = b"".join(source.read([7, 0, 3], 1, 2))
    target.write([2, 8, 4], 1, 2, memoryview(data))
    expected = torch.zeros_like(target.pages)
    expected[[2, 8, 4], 1:] = source.pages[[7, 0, 3], 1:]
    assert torch.equal(target.pages, expected)
