"""FlashInfer's paged attention on an NVIDIA GPU, on the page-major cache as it lies.

A layer's keys and values are strided ``[num_pages, page_tokens, num_kv_heads, head_dim]`` views,
which FlashInfer (0.5 and later) takes without a copy. One plan per step and distinct window: the
decode wrapper when every slice is one token, else the prefill wrapper for all slices. The package
is imported only when this backend is built; it compiles its kernels at first use.
"""

import importlib
import importlib.util
from typing import Any

import torch
from torch import Tensor

from pdcore.errors import ConfigError
from pdengine.batch import StepBatch
from pdengine.config import ModelConfig
from pdengine.kv_cache import KvCache

HEAD_DIMS = (64, 128, 256)
DTYPES = ("bfloat16", "float16")
_WORKSPACE_BYTES = 128 * 2**20  # the size that FlashInfer's documentation recommends


def build_flashinfer(config: ModelConfig, kv: KvCache) -> "FlashInfer":
    """Raises ConfigError when the device, the package or the model's shape does not fit."""
    reason = unsupported(config, kv)
    if reason is not None:
        raise ConfigError(f"engine.attention is 'flashinfer', but {reason}")
    return FlashInfer(importlib.import_module("flashinfer"), config, kv)


def unsupported(config: ModelConfig, kv: KvCache) -> str | None:
    """Why FlashInfer cannot serve this model here, or None."""
    if kv.device.type != "cuda":
        return f"it needs an NVIDIA GPU and the engine's device is {kv.device.type}"
    if importlib.util.find_spec("flashinfer") is None:
        return "its package is not installed (pip install flashinfer-python)"
    if kv.layout.dtype not in DTYPES:
        return f"engine.dtype is {kv.layout.dtype}; it takes {' or '.join(DTYPES)}"
    if config.head_dim not in HEAD_DIMS:
        return f"the model's head_dim is {config.head_dim}; it takes {HEAD_DIMS}"
    return None


class FlashInfer:
    """``package`` is the flashinfer module, or what stands for it in a test."""

    def __init__(self, package: Any, config: ModelConfig, kv: KvCache) -> None:
        self._config = config
        self._kv = kv
        self._store_rows = torch.empty(0, dtype=torch.int64)
        workspace = torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=kv.device)
        self._kernels = {
            window: _Kernels(package, config, kv, window, workspace)
            for window in set(config.layer_windows)
        }

    def plan(self, batch: StepBatch) -> None:
        self._store_rows = self._kv.key_rows(batch.slots)
        for kernels in self._kernels.values():
            kernels.plan(batch)

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._kv.store(layer, self._store_rows, k, v)
        kernels = self._kernels[self._config.layer_windows[layer]]
        return kernels.run(q, self._kv.layer(layer))


class _Kernels:
    """Both wrappers for one window, and which of them the current plan is for."""

    def __init__(
        self,
        package: Any,
        config: ModelConfig,
        kv: KvCache,
        window: int | None,
        workspace: Tensor,
    ) -> None:
        self._shape = (config.num_heads, config.num_kv_heads, config.head_dim)
        self._page_tokens = kv.layout.page_tokens
        # Plans of other windows live beside this one, in integer workspaces of their own; the
        # float workspace holds partial results of one launch only, so all share it.
        self._prefill = package.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend="fa2")
        self._decode = package.BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_tensor_cores=True
        )
        self._planned: Any = None
        self._options = {
            # FlashInfer counts the tokens to the left of the query, ours the query with them.
            "window_left": -1 if window is None else window - 1,
            "q_data_type": kv.pages.dtype,
            "kv_data_type": kv.pages.dtype,
        }

    def plan(self, batch: StepBatch) -> None:
        tables = batch.page_tables
        pages = _starts([len(table) for table in tables])
        indices = torch.tensor([page for table in tables for page in table], dtype=torch.int32)
        last_lengths = torch.tensor(
            [(length - 1) % self._page_tokens + 1 for length in batch.context_lengths],
            dtype=torch.int32,
        )
        paged = (pages, indices.to(batch.device), last_lengths)
        if batch.only_decode:
            self._planned = self._decode
            self._decode.plan(*paged, *self._shape, self._page_tokens, **self._options)
        else:
            self._planned = self._prefill
            queries = _starts(list(batch.query_lengths))
            self._prefill.plan(
                queries, *paged, *self._shape, self._page_tokens, causal=True, **self._options
            )

    def run(self, q: Tensor, layer_cache: tuple[Tensor, Tensor]) -> Tensor:
        out: Tensor = self._planned.run(q.contiguous(), layer_cache)
        return out


def _starts(lengths: list[int]) -> Tensor:
    """[0, l0, l0 + l1, ...], int32 on the CPU, where FlashInfer's planner reads it."""
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
