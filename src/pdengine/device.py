"""Where the model computes, and in what: what ``auto`` stands for on this machine."""

import torch

from pdcore.errors import ConfigError


def device_for(name: str) -> torch.device:
    """Raises ConfigError for a name that is none, and for a GPU that is not there."""
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"engine.device is {name!r}; one of auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("engine.device is 'cuda', but torch finds no CUDA device; use cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def dtype_for(name: str, device: torch.device) -> str:
    """A key of ``pdengine.kv_cache.TORCH_DTYPES``. Without instructions for bfloat16 a CPU needs
    several times as long for it as for float32.
    """
    if name != "auto":
        return name
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    capabilities = torch.cpu.get_capabilities()
    has_bf16 = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
    return "bfloat16" if has_bf16 else "float32"
