"""All layers in one call compute what the stages compute one by one, bit by bit."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model_rig import ModelRig
from pdengine.layers import Layers
from pdengine.layers.fused import FusedLayers, fits
from pdengine.layers.staged import StagedLayers
from tiny_checkpoints import VOCAB, TinyModel, transformers_logits

WINDOW = 24
HEAD_DIM = {"head_dim": 32}
MODELS = {
    "llama-gqa3": TinyModel("llama", 6, 2, HEAD_DIM),
    "llama-gqa8": TinyModel("llama", 8, 1, HEAD_DIM),
    "llama-biases": TinyModel(
        "llama", options={**HEAD_DIM, "attention_bias": True, "mlp_bias": True}
    ),
    "mistral-window": TinyModel("mistral", 6, 2, {**HEAD_DIM, "sliding_window": WINDOW}),
    "qwen3-some-windows": TinyModel(
        "qwen3",
        options={
            **HEAD_DIM,
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "qwen3-norms": TinyModel("qwen3", 6, 2, HEAD_DIM),
}
LENGTHS = (70, 3, 33, 64, 17)


@pytest.fixture(autouse=True, params=[1, 2])
def threads(request: pytest.FixtureRequest) -> None:
    torch.set_num_threads(request.param)


def prompt(length: int) -> list[int]:
    return random.Random(length).choices(range(VOCAB), k=length)


def rig_of(
    model_dir: Path, dtype: str, layers: Callable[..., Layers], *, as_int8: bool = False
) -> ModelRig:
    rig = ModelRig(model_dir, dtype=dtype, attention="cpu", as_int8=as_int8)
    rig.layers = layers(rig.model.config, rig.model.weights, rig.backend)
    return rig


def logits(rig: ModelRig) -> list[Tensor]:
    """Prefill, prefill beside decode, decode."""
    sequences = [rig.sequence(prompt(length)) for length in LENGTHS]
    parts = rig.compute(*((s, s.num_tokens - 2) for s in sequences[:-1]))
    parts += rig.compute(*((s, 1) for s in sequences[:-1]), (sequences[-1], 15))
    parts += rig.compute(*((s, 1) for s in reversed(sequences)))
    return parts


@pytest.mark.parametrize("as_int8", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_fused_layers_equal_the_stages(
    name: str, dtype: str, as_int8: bool, tmp_path: Path
) -> None:
    MODELS[name].save(tmp_path)
    fused = rig_of(tmp_path, dtype, FusedLayers, as_int8=as_int8)
    staged = rig_of(tmp_path, dtype, StagedLayers, as_int8=as_int8)
    assert fits(fused.model.config, fused.model.weights)
    for ours, theirs in zip(logits(fused), logits(staged), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_fused_layers_equal_transformers(name: str, tmp_path: Path) -> None:
    reference = MODELS[name].save(tmp_path)
    rig = rig_of(tmp_path, "float32", FusedLayers)
    tokens = prompt(70)
    ours = rig.in_chunks(rig.sequence(tokens), [15, 1, 16, 17, 19, 1, 1])
    theirs = transformers_logits(reference, tokens)
    assert float((ours - theirs).abs().max()) <= 1e-4 * float(theirs.abs().max())


def test_what_the_kernels_cannot_take_stays_in_stages(tmp_path: Path) -> None:
    """Heads of 16 are rotated by torch; torch's attention knows no kernel of ours."""
    TinyModel("llama").save(tmp_path)
    rig = ModelRig(tmp_path, attention="cpu")
    assert isinstance(rig.layers, StagedLayers)
    MODELS["llama-gqa3"].save(tmp_path)
    assert isinstance(ModelRig(tmp_path, attention="cpu").layers, FusedLayers)
    assert isinstance(ModelRig(tmp_path, attention="torch").layers, StagedLayers)
