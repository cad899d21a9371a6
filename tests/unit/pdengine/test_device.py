"""What ``auto`` stands for; what this machine itself has is irrelevant."""

import pytest
import torch

from pdcore.errors import ConfigError
from pdengine.device import device_for, dtype_for

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("capabilities", "dtype"),
    [
        ({"avx2": True, "avx512_f": True}, "float32"),
        ({"avx512_bf16": True}, "bfloat16"),
        ({"avx512_bf16": False, "amx_bf16": True}, "bfloat16"),
        ({"architecture": "aarch64"}, "float32"),
    ],
)
def test_a_cpu_computes_in_what_it_has_instructions_for(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, object], dtype: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert dtype_for("auto", CPU) == dtype


def test_a_dtype_that_is_set_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    assert [dtype_for(name, CPU) for name in ("bfloat16", "float16")] == ["bfloat16", "float16"]


def test_a_gpu_that_is_not_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_for("auto") == CPU
    with pytest.raises(ConfigError, match="torch finds no CUDA device; use cpu"):
        device_for("cuda")
