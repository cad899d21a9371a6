"""Checkpoints: one file or many, whole or damaged, and their fingerprint."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from model_rig import ModelRig
from pdcore.errors import ConfigError
from pdengine import checkpoint
from pdengine.checkpoint import fingerprint
from pdengine.config import load_config
from pdengine.projection import Projection
from pdengine.weights import ModelWeights, load_weights
from tiny_checkpoints import TinyModel

CPU = torch.device("cpu")


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    TinyModel("qwen3").save(tmp_path)
    return tmp_path


def load(model_dir: Path, dtype: torch.dtype = torch.float32) -> ModelWeights:
    return load_weights(load_config(model_dir), model_dir, dtype, CPU)


def matrix_of(projection: Projection, num_in: int) -> Tensor:
    """``[out, in]``, however it is kept."""
    return projection(torch.eye(num_in)).T


def change(model_dir: Path, name: str, tensor: Tensor | None) -> None:
    """Put ``tensor`` in the place of the one so named, or drop it."""
    path = model_dir / "model.safetensors"
    tensors = load_file(path)
    tensors.pop(name, None)
    if tensor is not None:
        tensors[name] = tensor
    save_file(tensors, path)


def test_projections_are_fused_in_order(model_dir: Path) -> None:
    tensors = load_file(model_dir / "model.safetensors")
    layer = load(model_dir).layers[1]
    prefix = "model.layers.1."
    attention = [tensors[f"{prefix}self_attn.{name}_proj.weight"] for name in "qkv"]
    assert torch.equal(matrix_of(layer.qkv, 96), torch.cat(attention))
    gate, up = (tensors[f"{prefix}mlp.{name}_proj.weight"] for name in ("gate", "up"))
    assert torch.equal(matrix_of(layer.gate_up, 96), torch.cat((gate, up)))


def test_weights_are_converted(model_dir: Path) -> None:
    weights = load(model_dir, torch.bfloat16)
    original = load_file(model_dir / "model.safetensors")["model.norm.weight"]
    assert torch.equal(weights.final_norm, original.to(torch.bfloat16))


def test_weights_outlive_their_file(model_dir: Path) -> None:
    weights = load(model_dir)
    before = weights.embedding.clone()
    path = model_dir / "model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    assert torch.equal(weights.embedding, before)


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    TinyModel("llama", options={"tie_word_embeddings": True}).save(tmp_path)
    weights = load(tmp_path)
    assert torch.equal(matrix_of(weights.head, 96), weights.embedding)


def test_a_sharded_checkpoint_equals_a_single_file(tmp_path: Path) -> None:
    model = TinyModel("llama")
    model.save(tmp_path / "single")
    model.save(tmp_path / "sharded", shard_bytes=100_000)
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 2
    tokens = list(range(20))
    logits = [
        rig.in_chunks(rig.sequence(tokens), [20])
        for rig in (ModelRig(tmp_path / "single"), ModelRig(tmp_path / "sharded"))
    ]
    assert torch.equal(*logits)


def test_progress_rises_to_one(model_dir: Path) -> None:
    steps: list[tuple[str, float]] = []
    load_weights(
        load_config(model_dir), model_dir, torch.float32, CPU, lambda *step: steps.append(step)
    )
    done = [fraction for _, fraction in steps]
    assert done == sorted(done)
    assert done[-1] == 1.0
    assert len(done) == 4


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("model.norm.weight", None, r"tensor model.norm.weight \[96\] is missing"),
        ("model.norm.weight", torch.ones(95), r"is \[95\]; config.json asks for \[96\]"),
        ("model.layers.0.self_attn.q_proj.bias", torch.ones(96), "q_proj.bias has no place"),
        ("model.norm.weight", torch.ones(96, dtype=torch.int8), "model.norm.weight is I8"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(
    model_dir: Path, name: str, tensor: Tensor | None, message: str
) -> None:
    change(model_dir, name, tensor)
    with pytest.raises(ConfigError, match=message):
        load(model_dir)


def test_stored_rope_frequencies_are_ignored(model_dir: Path) -> None:
    change(model_dir, "model.layers.0.self_attn.rotary_emb.inv_freq", torch.ones(8))
    assert len(load(model_dir).layers) == 3


@pytest.mark.parametrize("size", [4, 100, 100_000])
def test_a_truncated_file_is_one_clear_line(model_dir: Path, size: int) -> None:
    path = model_dir / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ConfigError, match="not a whole safetensors file") as error:
        load(model_dir)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_weights_in_another_format_are_refused(model_dir: Path) -> None:
    (model_dir / "model.safetensors").rename(model_dir / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="must be in safetensors format"):
        load(model_dir)


@pytest.mark.parametrize("index", ["{", "{}", '{"weight_map": {"x": 3}}'])
def test_a_damaged_index_is_named(model_dir: Path, index: str) -> None:
    (model_dir / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ConfigError, match=r"model.safetensors.index.json: expected"):
        load(model_dir)


def test_a_missing_shard_is_named(model_dir: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (model_dir / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"model-00001-of-00002\.safetensors: no such file"):
        load(model_dir)


def test_the_fingerprint_follows_config_and_weights(model_dir: Path) -> None:
    def current() -> str:
        return fingerprint(load_config(model_dir), model_dir)

    first = current()
    assert first == current()
    change(model_dir, "model.norm.weight", torch.ones(96))
    second = current()
    table = json.loads((model_dir / "config.json").read_text())
    (model_dir / "config.json").write_text(json.dumps({**table, "rms_norm_eps": 1e-4}))
    assert len({first, second, current()}) == 3


def test_large_weights_are_hashed_by_samples(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "WHOLE_HASH_BYTES", 0)
    config = load_config(model_dir)
    path = model_dir / "model.safetensors"
    first = fingerprint(config, model_dir)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert fingerprint(config, model_dir) != first
