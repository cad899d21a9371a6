"""Logits equal transformers', whatever the family, the chunks and the batch."""

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model_rig import ModelRig
from pdengine.batch import Slice, StepBatch
from tiny_checkpoints import VOCAB, TinyModel, transformers_logits

LENGTH = 70  # not a multiple of any page size
WINDOW = 24  # shorter than LENGTH, and no multiple of a page

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

MODELS = {
    "llama-gqa1": TinyModel("llama", 6, 6),
    "llama-gqa3": TinyModel("llama", 6, 2),
    "llama-gqa8": TinyModel("llama", 8, 1),
    "llama-tied": TinyModel("llama", options={"tie_word_embeddings": True}),
    "llama-biases": TinyModel("llama", options={"attention_bias": True, "mlp_bias": True}),
    "llama-head-dim": TinyModel("llama", options={"head_dim": 24}),
    "mistral-gqa1": TinyModel("mistral", 6, 6, {"sliding_window": None}),
    "mistral-gqa3-window": TinyModel("mistral", 6, 2, {"sliding_window": WINDOW}),
    "mistral-gqa8": TinyModel("mistral", 8, 1, {"sliding_window": None}),
    "qwen2-gqa1": TinyModel("qwen2", 6, 6),
    "qwen2-gqa3": TinyModel("qwen2", 6, 2),
    "qwen2-gqa8-tied": TinyModel("qwen2", 8, 1, {"tie_word_embeddings": True}),
    "qwen2-windows": TinyModel(
        "qwen2",
        options={"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2},
    ),
    "qwen3-gqa1": TinyModel("qwen3", 6, 6),
    "qwen3-gqa3-bias": TinyModel("qwen3", 6, 2, {"attention_bias": True}),
    "qwen3-gqa8": TinyModel("qwen3", 8, 1),
    "qwen3-layer-types": TinyModel(
        "qwen3",
        options={
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "rope-theta": TinyModel(
        "llama", options={"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
    ),
    "rope-linear": TinyModel(
        "llama", options={"rope_parameters": {"rope_type": "linear", "factor": 4.0}}
    ),
    "rope-dynamic": TinyModel(
        "llama", options={"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}
    ),
    "rope-yarn": TinyModel("qwen2", options={"rope_parameters": YARN}),
    "rope-yarn-mscale": TinyModel(
        "llama",
        options={
            "rope_parameters": {
                **YARN,
                "rope_theta": 1000.0,
                "mscale": 0.7,
                "mscale_all_dim": 1.3,
                "beta_fast": 20.0,
                "beta_slow": 2.0,
                "truncate": False,
            }
        },
    ),
    "rope-llama3": TinyModel("llama", options={"rope_parameters": LLAMA3}),
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def prompt(length: int = LENGTH, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(VOCAB), k=length)


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-4) -> None:
    """Within ``tolerance`` of the largest logit."""
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) <= tolerance * float(theirs.abs().max())


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    reference = MODELS[name].save(tmp_path)
    tokens = prompt()
    expected = transformers_logits(reference, tokens)
    rig = ModelRig(tmp_path)
    for chunks in ([70], [15, 1, 16, 17, 21], [64, 1, 1, 1, 1, 1, 1]):
        assert_close(rig.in_chunks(rig.sequence(tokens), chunks), expected)


@pytest.mark.parametrize("name", ["llama-gqa3", "mistral-gqa3-window", "qwen3-gqa8"])
@pytest.mark.parametrize("page_tokens", [8, 16, 64])
def test_a_batch_of_prefill_and_decode_equals_each_alone(
    name: str, page_tokens: int, tmp_path: Path
) -> None:
    reference = MODELS[name].save(tmp_path)
    rig = ModelRig(tmp_path, page_tokens)
    prompts = [prompt(length, seed=length) for length in (70, 3, 33, 64, 17)]
    expected = [transformers_logits(reference, tokens) for tokens in prompts]
    sequences = [rig.sequence(tokens) for tokens in prompts]
    # All but the last two tokens first, prompts together; then decode steps beside a prefill.
    parts = [rig.compute(*((s, s.num_tokens - 2) for s in sequences[:-1]))]
    parts.append(rig.compute(*((s, 1) for s in sequences[:-1]), (sequences[-1], 15)))
    parts.append(rig.compute(*((s, 1) for s in reversed(sequences)))[::-1])
    parts.append(rig.compute((sequences[-1], 1)))
    for i, theirs in enumerate(expected[:-1]):
        assert_close(torch.cat([part[i] for part in parts[:3]]), theirs)
    assert_close(torch.cat([parts[1][-1], parts[2][-1], parts[3][0]]), expected[-1])


def test_bfloat16_stays_close_to_transformers_in_bfloat16(tmp_path: Path) -> None:
    reference = MODELS["qwen3-gqa3-bias"].save(tmp_path).to(torch.bfloat16)
    tokens = prompt()
    rig = ModelRig(tmp_path, dtype="bfloat16")
    ours = rig.in_chunks(rig.sequence(tokens), [40, 30])
    assert_close(ours, transformers_logits(reference, tokens), tolerance=0.03)


def test_only_the_wanted_rows_become_logits(tmp_path: Path) -> None:
    MODELS["llama-tied"].save(tmp_path)
    rig = ModelRig(tmp_path)
    everything = rig.compute((rig.sequence(prompt()), LENGTH))[0]
    batch = StepBatch.of([Slice(rig.sequence(prompt()), LENGTH, (0,))], 16, rig.kv.device)
    with torch.inference_mode():
        wanted = rig.model.forward(batch, rig.layers, torch.tensor([3, LENGTH - 1]))
    assert wanted.dtype == torch.float32
    assert_close(wanted, everything[[3, LENGTH - 1]])
