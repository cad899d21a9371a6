"""Attention backends by name. ``auto`` is the best that can serve the model: FlashInfer on a GPU,
our own kernels on a CPU, torch where those cannot."""

import logging

from pdcore.errors import ConfigError
from pdengine.attention import cpu, flashinfer
from pdengine.attention.interface import AttentionBackend, Builder
from pdengine.attention.schedules import DEFAULT_SCHEDULE, SCHEDULES
from pdengine.attention.torch_reference import TorchReference
from pdengine.config import ModelConfig
from pdengine.kv_cache import KvCache

log = logging.getLogger(__name__)

BACKENDS: dict[str, Builder] = {
    "flashinfer": lambda config, kv, _: flashinfer.build_flashinfer(config, kv),
    "cpu": cpu.build_cpu,
    "torch": lambda config, kv, _: TorchReference(config, kv),
}


def build_backend(
    name: str, config: ModelConfig, kv: KvCache, schedule: str = DEFAULT_SCHEDULE
) -> AttentionBackend:
    """``name`` is a key of ``BACKENDS`` or ``auto``, ``schedule`` one of ``SCHEDULES``, for the
    backends that leave the choice. Raises ConfigError for others, and where it cannot serve."""
    if schedule not in SCHEDULES:
        known = ", ".join(SCHEDULES)
        raise ConfigError(f"engine.schedule is {schedule!r}; one of {known}")
    return BACKENDS[backend_name(name, config, kv)](config, kv, schedule)


def backend_name(name: str, config: ModelConfig, kv: KvCache) -> str:
    """What ``auto`` stands for here; any other known name is itself."""
    if name == "auto":
        return _best(config, kv)
    if name not in BACKENDS:
        raise ConfigError(f"engine.attention is {name!r}; one of auto, {', '.join(BACKENDS)}")
    return name


def _best(config: ModelConfig, kv: KvCache) -> str:
    """Says in the log why the backend that is meant for this device is not used."""
    meant = "flashinfer" if kv.device.type == "cuda" else "cpu"
    module = flashinfer if meant == "flashinfer" else cpu
    reason = module.unsupported(config, kv)
    if reason is None:
        return meant
    log.warning("attention by torch, since %s is not possible: %s", meant, reason)
    return "torch"


__all__ = ["AttentionBackend", "BACKENDS", "Builder", "backend_name", "build_backend"]
