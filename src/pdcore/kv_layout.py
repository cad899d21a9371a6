"""The shape of KV memory: what one page holds and how many bytes that is.

A pool is ``[num_pages, num_layers, 2, page_tokens, num_kv_heads, head_dim]`` (2 = K, V), so one
page is contiguous over all layers: one wire unit with nothing to gather. Two nodes can exchange
pages exactly when their layouts are equal; ``difference`` names the first field that is not.
"""

from dataclasses import dataclass, fields
from typing import Self

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class KvLayout:
    """``model`` is the fingerprint of config and weights: KV of another model is never accepted."""

    model: str
    num_layers: int
    num_kv_heads: int
    head_dim: int
    page_tokens: int
    dtype: str

    @property
    def layer_bytes(self) -> int:
        """Bytes of one layer of one page: K and V."""
        row = self.num_kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]
        return 2 * self.page_tokens * row

    @property
    def page_bytes(self) -> int:
        return self.num_layers * self.layer_bytes

    def num_pages(self, num_tokens: int) -> int:
        """Pages that hold ``num_tokens`` tokens (the last one perhaps in part)."""
        return -(-num_tokens // self.page_tokens)

    def difference(self, other: Self) -> str | None:
        """``"page_tokens: 16 here, 64 there"`` for the first field that differs, else None."""
        for field in fields(self):
            here, there = getattr(self, field.name), getattr(other, field.name)
            if here != there:
                return f"{field.name}: {here} here, {there} there"
        return None
