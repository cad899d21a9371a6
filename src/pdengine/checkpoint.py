"""A directory's safetensors files, read by tensor name; and the fingerprint of a model.

One ``model.safetensors``, or a sharded set with ``model.safetensors.index.json``. Headers are read
first, so a missing file, a damaged header or a wrong shape is one ``ConfigError`` before any weight
is loaded. Other formats are refused: a pickle can run code.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pdcore.errors import ConfigError
from pdengine.config import ModelConfig

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = ("BF16", "F16", "F32", "F64")

# Weights up to this size are hashed whole. Above, each file gives its header, its last bytes and
# one MiB of every 64: a different fine-tune differs everywhere, a flipped bit may go unseen.
WHOLE_HASH_BYTES = 2 * 2**30
_SAMPLE_BYTES = 2**20
_SAMPLE_STRIDE = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``shapes`` and ``files`` by tensor name; nothing is loaded yet."""

    model_dir: Path
    files: Mapping[str, Path]
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def open(cls, model_dir: Path) -> Self:
        """Read all headers. Raises ConfigError for what is missing, damaged or not a float."""
        files: dict[str, Path] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for path in weight_files(model_dir):
            for name, shape in _header(path).items():
                files[name], shapes[name] = path, shape
        return cls(model_dir, files, shapes)

    def check(self, needed: Mapping[str, tuple[int, ...]], ignored: Iterable[str]) -> None:
        """Every tensor of ``needed`` is there with its shape, and no other but those whose name
        ends with a word of ``ignored``: a weight that we do not use would change the output."""
        for name, shape in needed.items():
            if name not in self.shapes:
                raise ConfigError(f"{self.model_dir}: tensor {name} {list(shape)} is missing")
            if self.shapes[name] != shape:
                raise ConfigError(
                    f"{self.files[name]}: tensor {name} is {list(self.shapes[name])}; "
                    f"config.json asks for {list(shape)}"
                )
        for name in self.shapes.keys() - needed.keys():
            if not name.endswith(tuple(ignored)):
                raise ConfigError(
                    f"{self.files[name]}: tensor {name} has no place in this architecture"
                )

    def load(self, names: Iterable[str], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
        """The named tensors, copied out of the mapped file, so that it may change afterwards."""
        tensors = []
        for name in names:
            path = self.files[name]
            try:
                with safe_open(path, framework="pt") as file:
                    tensor = file.get_tensor(name)
            except (SafetensorError, OSError) as error:
                raise ConfigError(f"{path}: cannot read tensor {name}: {error}") from None
            tensors.append(tensor.to(device=device, dtype=dtype, copy=True))
        return tensors


def weight_files(model_dir: Path) -> list[Path]:
    """The safetensors files of a model, sorted. Raises ConfigError when one is missing."""
    index = model_dir / INDEX
    if index.is_file():
        paths = sorted({model_dir / name for name in _weight_map(index).values()})
    else:
        paths = [model_dir / SINGLE]
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; weights must be in safetensors format")
    return paths


def fingerprint(config: ModelConfig, model_dir: Path) -> str:
    """32 hex digits of config and weights: KV pages of models that differ are never exchanged.

    Large weights are hashed by samples (``WHOLE_HASH_BYTES``).
    """
    digest = xxhash.xxh3_128(json.dumps(asdict(config), sort_keys=True).encode())
    paths = weight_files(model_dir)
    whole = sum(path.stat().st_size for path in paths) <= WHOLE_HASH_BYTES
    for path in paths:
        stride = _SAMPLE_BYTES if whole else _SAMPLE_STRIDE
        _hash_file(digest, path, stride)
    return digest.hexdigest()


def _hash_file(digest: "xxhash.xxh3_128", path: Path, stride: int) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        for start in range(0, size, stride):
            file.seek(start)
            digest.update(file.read(_SAMPLE_BYTES))
        if stride > _SAMPLE_BYTES:
            file.seek(max(0, size - _SAMPLE_BYTES))
            digest.update(file.read())


def _weight_map(index: Path) -> dict[str, str]:
    try:
        weight_map = json.loads(index.read_text())["weight_map"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        weight_map = None
    if not isinstance(weight_map, dict) or not all(map(_is_name, weight_map.values())):
        raise ConfigError(f"{index}: expected a JSON object with a weight_map")
    return weight_map


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _header(path: Path) -> dict[str, tuple[int, ...]]:
    shapes = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                header = file.get_slice(name)
                if header.get_dtype() not in FLOATS:
                    raise ConfigError(
                        f"{path}: tensor {name} is {header.get_dtype()}; "
                        f"supported: {', '.join(FLOATS)}"
                    )
                shapes[name] = tuple(header.get_shape())
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path}: not a whole safetensors file: {error}") from None
    return shapes
