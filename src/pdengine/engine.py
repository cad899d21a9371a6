"""One model on one device: load it, then run steps.

``run`` is the whole story of a step: slices become a batch, the model computes it, tokens are
sampled. It blocks, belongs to one compute thread, and changes no sequence: the caller, on the
event loop, advances ``num_computed`` and appends tokens afterwards. ``pool`` and ``prefix`` are the
event loop's; this file only builds them.
"""

import logging
from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from pdcore.errors import ConfigError, InternalError, InvalidRequest, PromptTooLong
from pdcore.generation import GenerationRequest
from pdcore.kv_layout import KvLayout
from pdcore.settings import EngineSettings
from pdengine.attention import build_backend
from pdengine.batch import Slice, StepBatch
from pdengine.checkpoint import fingerprint
from pdengine.config import load_config
from pdengine.device import device_for, dtype_for
from pdengine.kv_cache import TORCH_DTYPES, KvCache
from pdengine.layers import layers_for
from pdengine.model import Model
from pdengine.page_pool import PagePool
from pdengine.prefix_cache import PrefixCache
from pdengine.sampler import sample
from pdengine.weights import Progress, load_weights

log = logging.getLogger(__name__)

Sampled = tuple[int, ...] | InternalError


class Engine:
    """Built by ``load``."""

    def __init__(self, model: Model, kv: KvCache, settings: EngineSettings) -> None:
        self.config = model.config
        self.layout = kv.layout
        self.kv = kv
        self.pool = PagePool(kv.num_pages)
        self.prefix = PrefixCache(
            self.pool, kv.layout.page_tokens, repr(kv.layout), settings.prefix_cache
        )
        self._model = model
        self.backend = build_backend(settings.attention, model.config, kv, settings.schedule)
        self._layers = layers_for(model.config, model.weights, self.backend)

    @classmethod
    def load(
        cls, model_dir: Path, settings: EngineSettings, progress: Progress | None = None
    ) -> "Engine":
        """Blocking, seconds. ``progress`` gets (what, done) with done from 0 to 1.

        Raises ConfigError for a model or a setting that cannot be served.
        """
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        device = device_for(settings.device)
        config = load_config(model_dir)
        dtype = dtype_for(settings.dtype, device)
        as_int8 = settings.weights == "int8"
        weights = load_weights(
            config, model_dir, TORCH_DTYPES[dtype], device, progress, as_int8=as_int8
        )
        layout = KvLayout(
            model=fingerprint(config, model_dir) + (" int8" if as_int8 else ""),
            num_layers=config.num_layers,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            page_tokens=settings.page_tokens,
            dtype=dtype,
        )
        return cls(Model(config, weights), _kv_cache(layout, settings, device), settings)

    def with_settings(self, settings: EngineSettings) -> "Engine":
        """Another one over the same weights and KV memory, for comparisons: its page numbers are
        its own, so only one of the two may own pages. Raises ConfigError."""
        return Engine(self._model, self.kv, settings)

    @property
    def max_tokens(self) -> int:
        """Most tokens, prompt and generated, of one sequence: the model's context or the pool."""
        return min(self.config.max_tokens, self.kv.num_pages * self.layout.page_tokens)

    def least_step_bytes(self, num_context_tokens: int) -> int:
        """What a decode step cannot but read: every matrix once, and the KV of its contexts."""
        kv_bytes = num_context_tokens * self.layout.page_bytes // self.layout.page_tokens
        return self._model.weights.product_bytes + kv_bytes

    def check(self, request: GenerationRequest) -> None:
        """Whether the model can compute this at all; whoever sent it may not be a router of ours.

        Raises InvalidRequest (a token that the vocabulary lacks) or PromptTooLong.
        """
        self.check_tokens(request.prompt_token_ids)
        num_tokens = len(request.prompt_token_ids) + request.max_tokens
        if num_tokens > self.config.max_tokens:
            raise PromptTooLong(
                f"prompt ({len(request.prompt_token_ids)} tokens) and max_tokens"
                f" ({request.max_tokens}) exceed the model's context of {self.config.max_tokens}"
            )

    def check_tokens(self, token_ids: SequenceOf[int]) -> None:
        """Raises InvalidRequest for a token id that the model has no embedding for."""
        highest = max(token_ids)
        if highest >= self.config.vocab_size:
            raise InvalidRequest(
                f"token id {highest}; this model's are 0 to {self.config.vocab_size - 1}"
            )

    @torch.inference_mode()
    def run(self, slices: SequenceOf[Slice]) -> list[Sampled]:
        """Compute one step; per slice the tokens sampled for its ``choices``, in their order,
        or none when the slice ends before its sequence does. A slice whose logits are not numbers
        has an InternalError in their place.

        When it returns, the KV of every token of the step is in the cache. Raises InternalError
        when the step as a whole failed, for want of memory for instance: then none of its KV is.
        """
        with _step_errors():
            return self._run(slices)

    def _run(self, slices: SequenceOf[Slice]) -> list[Sampled]:
        batch = StepBatch.of(slices, self.layout.page_tokens, self.kv.device)
        ends = list(accumulate(batch.query_lengths))
        wanted = [
            (end - 1, piece.sequence.sample_row(choice))
            for end, piece in zip(ends, slices, strict=True)
            if piece.reaches_end
            for choice in piece.choices
        ]
        logits = self._logits(batch, [row for row, _ in wanted])
        tokens = iter(sample(logits, [row for _, row in wanted]) if wanted else ())
        self._finish()
        return [
            _sampled([next(tokens) for _ in piece.choices]) if piece.reaches_end else ()
            for piece in slices
        ]

    @torch.inference_mode()
    def copy_page(self, source: int, target: int) -> None:
        """Copy-on-write; on the compute thread. Raises InternalError as ``run`` does."""
        with _step_errors():
            self.kv.copy_page(source, target)
            self._finish()

    def _logits(self, batch: StepBatch, rows: list[int]) -> Tensor:
        """float32 [len(rows), vocab]; a row that several choices sample from is computed once."""
        distinct = sorted(set(rows))
        at = torch.tensor(distinct, dtype=torch.int64, device=batch.device)
        logits = self._model.forward(batch, self._layers, at)
        if distinct == rows:
            return logits
        return logits[[distinct.index(row) for row in rows]]

    def _finish(self) -> None:
        # Another thread may read these pages at once: launched is not computed.
        if self.kv.device.type == "cuda":
            torch.cuda.current_stream(self.kv.device).synchronize()


def _sampled(tokens: SequenceOf[int | InternalError]) -> Sampled:
    """A choice that could not be sampled takes the whole slice with it."""
    for token in tokens:
        if isinstance(token, InternalError):
            return token
    return tuple(token for token in tokens if isinstance(token, int))


@contextmanager
def _step_errors() -> Iterator[None]:
    """What torch raises (out of memory, a kernel's refusal) fails a step, not the node."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        log.exception("a step failed")
        reason = str(error).partition("\n")[0][:200]
        raise InternalError(f"the model could not compute this step: {reason}") from error


def _kv_cache(layout: KvLayout, settings: EngineSettings, device: torch.device) -> KvCache:
    num_pages = settings.num_pages
    if num_pages is None:
        num_pages = settings.kv_memory_bytes // layout.page_bytes
    if num_pages < 2:
        raise ConfigError(
            f"the KV pool would hold {num_pages} pages of {layout.page_bytes} bytes; it needs 2: "
            "raise engine.num_pages or engine.kv_memory_bytes"
        )
    try:
        return KvCache(layout, num_pages, device)
    except RuntimeError:  # what torch raises when there is not so much memory
        raise ConfigError(
            f"no memory on {device} for a KV pool of {num_pages * layout.page_bytes} bytes: "
            "lower engine.num_pages or engine.kv_memory_bytes"
        ) from None
