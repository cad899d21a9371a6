"""Attention backends by name. ``auto`` is FlashInfer where it can serve the model, else torch."""

from pdcore.errors import ConfigError
from pdengine.attention.flashinfer import build_flashinfer
from pdengine.attention.flashinfer import unsupported as flashinfer_unsupported
from pdengine.attention.interface import AttentionBackend, Builder
from pdengine.attention.torch_reference import TorchReference
from pdengine.config import ModelConfig
from pdengine.kv_cache import KvCache

BACKENDS: dict[str, Builder] = {
    "torch": TorchReference,
    "flashinfer": build_flashinfer,
}


def build_backend(name: str, config: ModelConfig, kv: KvCache) -> AttentionBackend:
    """``name`` is a key of ``BACKENDS`` or ``auto``. Raises ConfigError where it cannot serve."""
    return BACKENDS[backend_name(name, config, kv)](config, kv)


def backend_name(name: str, config: ModelConfig, kv: KvCache) -> str:
    """What ``auto`` stands for here; any other known name is itself."""
    if name == "auto":
        return "torch" if flashinfer_unsupported(config, kv) else "flashinfer"
    if name not in BACKENDS:
        raise ConfigError(f"engine.attention is {name!r}; one of auto, {', '.join(BACKENDS)}")
    return name


__all__ = ["AttentionBackend", "BACKENDS", "Builder", "backend_name", "build_backend"]
