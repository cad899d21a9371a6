"""What FlashInfer 0.5 documents of its two paged wrappers, computed in float64 on a CPU.

It stands for the package where there is no GPU: our plans and calls are checked, its kernels are
not. A wrong dtype, shape or keyword fails here as it would there.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class _Plan:
    query_starts: Tensor
    page_starts: Tensor
    pages: Tensor
    last_lengths: Tensor
    num_heads: int
    num_kv_heads: int
    page_tokens: int
    window_left: int
    dtype: torch.dtype


class _Wrapper:
    _plan: _Plan

    def __init__(self, workspace: Tensor, kv_layout: str) -> None:
        assert workspace.dtype == torch.uint8
        assert kv_layout == "NHD"

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor]) -> Tensor:
        plan = self._plan
        keys, values = paged_kv_cache
        assert keys.shape == values.shape
        assert keys.stride() == values.stride()
        assert keys.shape[1:3] == (plan.page_tokens, plan.num_kv_heads)
        assert q.dtype == keys.dtype == plan.dtype
        assert q.is_contiguous()
        assert q.shape[:2] == (int(plan.query_starts[-1]), plan.num_heads)
        out = torch.empty_like(q)
        for i in range(len(plan.last_lengths)):
            rows = slice(*plan.query_starts[i : i + 2].tolist())
            at = plan.pages[slice(*plan.page_starts[i : i + 2].tolist())].long()
            length = (len(at) - 1) * plan.page_tokens + int(plan.last_lengths[i])
            context = [cache[at].flatten(0, 1)[:length].double() for cache in (keys, values)]
            out[rows] = _attend(q[rows].double(), *context, plan.window_left).to(q.dtype)
        return out


class BatchPrefillWithPagedKVCacheWrapper(_Wrapper):
    def __init__(self, workspace: Tensor, kv_layout: str, *, backend: str) -> None:
        super().__init__(workspace, kv_layout)
        assert backend in ("auto", "fa2", "fa3")

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool,
        window_left: int,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        paged = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        assert all(tensor.dtype == torch.int32 for tensor in paged)
        assert causal
        assert q_data_type == kv_data_type
        self._plan = _Plan(*paged, num_qo_heads, num_kv_heads, page_size, window_left, q_data_type)


class BatchDecodeWithPagedKVCacheWrapper(_Wrapper):
    def __init__(self, workspace: Tensor, kv_layout: str, *, use_tensor_cores: bool) -> None:
        super().__init__(workspace, kv_layout)
        assert use_tensor_cores  # without them only some GQA ratios are compiled

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        window_left: int,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        paged = (indptr, indices, last_page_len)
        assert all(tensor.dtype == torch.int32 for tensor in paged)
        assert q_data_type == kv_data_type
        starts = torch.arange(len(last_page_len) + 1)
        self._plan = _Plan(
            starts, *paged, num_qo_heads, num_kv_heads, page_size, window_left, q_data_type
        )


def _attend(q: Tensor, keys: Tensor, values: Tensor, window_left: int) -> Tensor:
    """Causal, the last query at the last key; ``window_left`` keys before each query, or -1."""
    num_groups = q.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(num_groups, dim=1) for x in (keys, values))
    at_query = torch.arange(len(keys) - len(q), len(keys))[:, None]
    at_key = torch.arange(len(keys))
    seen = at_key <= at_query
    if window_left >= 0:
        seen &= at_key >= at_query - window_left
    scores = torch.einsum("qhd,khd->hqk", q, keys) / q.shape[2] ** 0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=2)
    return torch.einsum("hqk,khd->qhd", weights, values)
