"""What the model asks of attention, and nothing more.

Once per step ``plan`` sees the whole batch; then ``run`` is called once per layer, in order. A
backend writes the step's keys and values into the cache itself, so that a kernel may fuse it, and
reads only slots below a sequence's context length: what lies beyond is another sequence's past.
"""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from pdengine.batch import StepBatch
from pdengine.config import ModelConfig
from pdengine.kv_cache import KvCache


class AttentionBackend(Protocol):
    def plan(self, batch: StepBatch) -> None:
        """Prepare index tensors for ``batch``; valid until the next ``plan``."""

    def run(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store ``k`` and ``v``, then attend causally, within the layer's window if it has one.

        ``q`` is ``[num_tokens, num_heads, head_dim]``, ``k`` and ``v``
        ``[num_tokens, num_kv_heads, head_dim]``, rotated; the result has the shape of ``q``.
        """


Builder = Callable[[ModelConfig, KvCache, str], AttentionBackend]  # with a schedule's name
