"""An engine without a model, for tests of what schedules steps and owns pages.

The KV of a token is a digest of all tokens up to it, as a model's KV depends on them; a sampled
token is a pure function of the tokens before it, the seed and the choice. ``run`` asserts that the
KV of everything computed before is where the page table says, and that nothing is written where
another slice reads. So a page that was given away too early, shared when written, or not copied is
found by the first step that meets it.
"""

import struct
from collections.abc import Sequence as ListOf
from hashlib import blake2b
from itertools import combinations

from pdcore.errors import InternalError, InvalidRequest
from pdcore.generation import FinishReason, GenerationRequest, RequestId
from pdcore.kv_layout import KvLayout
from pdengine.batch import Slice
from pdengine.page_pool import PagePool
from pdengine.prefix_cache import PrefixCache
from pdengine.sequence import Sequence

VOCAB = 4  # what it samples from
_TOKEN_BYTES = 8  # of one layer: K and V, one head, one float32 each


class FakeKv:
    """Bytes of pages; ``read`` and ``write`` as ``pdengine.kv_cache.KvCache`` has them."""

    def __init__(self, layout: KvLayout, num_pages: int) -> None:
        self.layout = layout
        self._memory = memoryview(bytearray(num_pages * layout.page_bytes))

    def read(self, pages: ListOf[int], first_layer: int, num_layers: int) -> list[memoryview]:
        size = num_layers * self.layout.layer_bytes
        starts = [self._start(page, first_layer) for page in pages]
        return [self._memory[start : start + size] for start in starts]

    def write(
        self, pages: ListOf[int], first_layer: int, num_layers: int, data: memoryview
    ) -> None:
        size = num_layers * self.layout.layer_bytes
        if data.nbytes != size * len(pages):
            raise ValueError("not the size of these pages and layers")
        for i, page in enumerate(pages):
            start = self._start(page, first_layer)
            self._memory[start : start + size] = data[i * size : (i + 1) * size]

    def spoil(self, pages: ListOf[int]) -> None:
        """Overwrite with bytes that are no token's KV."""
        for page in pages:
            garbage = memoryview(b"\xee" * self.layout.page_bytes)
            self.write([page], 0, self.layout.num_layers, garbage)

    def tokens(self, pages: ListOf[int], first: int, end: int) -> list[bytes]:
        """The KV of tokens [first, end) of a sequence with this page table."""
        return [
            bytes(self._memory[at : at + _TOKEN_BYTES])
            for token in range(first, end)
            for at in self._places(pages, token)
        ]

    def store(self, pages: ListOf[int], first: int, kv: ListOf[bytes]) -> None:
        for token, digest in enumerate(kv, first):
            for layer, at in enumerate(self._places(pages, token)):
                self._memory[at : at + _TOKEN_BYTES] = _of_layer(digest, layer)

    def _start(self, page: int, layer: int) -> int:
        return page * self.layout.page_bytes + layer * self.layout.layer_bytes

    def _places(self, pages: ListOf[int], token: int) -> list[int]:
        page, offset = divmod(token, self.layout.page_tokens)
        return [
            self._start(pages[page], layer) + offset * _TOKEN_BYTES
            for layer in range(self.layout.num_layers)
        ]


class FakeEngine:
    """What the nodes use of ``pdengine.engine.Engine``, with the real pool and prefix cache."""

    def __init__(self, num_pages: int, page_tokens: int = 4, *, prefix_cache: bool = True) -> None:
        self.layout = KvLayout("fake", 2, 1, 1, page_tokens, "float32")
        self.kv = FakeKv(self.layout, num_pages)
        self.pool = PagePool(num_pages)
        self.prefix = PrefixCache(self.pool, page_tokens, "fake", prefix_cache)
        self.max_tokens = num_pages * page_tokens
        self.steps: list[list[Slice]] = []
        self.num_computed_tokens = 0
        self.fail_next: Exception | None = None  # the whole step
        self.broken: set[RequestId] = set()  # these get an error instead of tokens

    def check(self, request: GenerationRequest) -> None:
        self.check_tokens(request.prompt_token_ids)

    def check_tokens(self, token_ids: ListOf[int]) -> None:
        if max(token_ids) >= VOCAB:
            raise InvalidRequest(f"token id {max(token_ids)}; this model's are 0 to {VOCAB - 1}")

    def run(self, slices: ListOf[Slice]) -> list[tuple[int, ...] | InternalError]:
        self.steps.append(list(slices))
        self._check_apart(slices)
        tokens = [self._compute(piece) for piece in slices]
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        return tokens

    def copy_page(self, source: int, target: int) -> None:
        (data,) = self.kv.read([source], 0, self.layout.num_layers)
        self.kv.write([target], 0, self.layout.num_layers, data)

    def _compute(self, piece: Slice) -> tuple[int, ...] | InternalError:
        sequence = piece.sequence
        start, end = sequence.num_computed, sequence.num_computed + piece.num_tokens
        assert start < end <= sequence.num_tokens, "a slice holds tokens still to be computed"
        assert end <= len(sequence.pages) * self.layout.page_tokens, "a slice has its pages"
        assert self.holds_kv(sequence.pages, sequence.token_ids, start), "the context's KV is there"
        self.kv.store(sequence.pages, start, kv_of(sequence.token_ids)[start:end])
        self.num_computed_tokens += piece.num_tokens
        if not piece.reaches_end:
            return ()
        if sequence.request.request_id in self.broken:
            return InternalError("no token can be sampled")
        return tuple(_sampled(sequence, choice) for choice in piece.choices)

    def holds_kv(self, pages: ListOf[int], token_ids: ListOf[int], num_tokens: int) -> bool:
        """Whether the pages hold the KV of the first ``num_tokens`` tokens."""
        expected = [
            _of_layer(digest, layer)
            for digest in kv_of(token_ids[:num_tokens])
            for layer in range(self.layout.num_layers)
        ]
        return self.kv.tokens(pages, 0, num_tokens) == expected

    def _check_apart(self, slices: ListOf[Slice]) -> None:
        for one, other in combinations(slices, 2):
            assert not self._written(one) & set(other.sequence.pages)
            assert not self._written(other) & set(one.sequence.pages)
        for piece in slices:
            pages = piece.sequence.pages
            assert len(set(pages)) == len(pages), "a page appears once in a page table"
            assert all(self.pool.num_references(page) <= 1 for page in self._written(piece))

    def _written(self, piece: Slice) -> set[int]:
        start = piece.sequence.num_computed
        last = start + piece.num_tokens - 1
        size = self.layout.page_tokens
        return set(piece.sequence.pages[start // size : last // size + 1])


def kv_of(token_ids: ListOf[int]) -> list[bytes]:
    """One digest per token, of it and all before it."""
    digests, digest = [], b""
    for token in token_ids:
        digest = blake2b(digest + struct.pack("<I", token), digest_size=_TOKEN_BYTES).digest()
        digests.append(digest)
    return digests


def next_token(token_ids: ListOf[int], seed: int, choice: int, banned: ListOf[int] = ()) -> int:
    text = repr((tuple(token_ids), seed, choice)).encode()
    allowed = [token for token in range(VOCAB) if token not in banned]
    return allowed[blake2b(text, digest_size=1).digest()[0] % len(allowed)]


def alone(request: GenerationRequest, choice: int) -> tuple[list[int], FinishReason]:
    """What a choice's client gets when nothing else runs: computed without any of our code."""
    token_ids = list(request.prompt_token_ids)
    for num_generated in range(request.max_tokens):
        banned = request.stop_token_ids if num_generated < request.min_tokens else ()
        token = next_token(token_ids, request.sampling.seed, choice, banned)
        if token in request.stop_token_ids:
            return token_ids[len(request.prompt_token_ids) :], FinishReason.STOP
        token_ids.append(token)
    return token_ids[len(request.prompt_token_ids) :], FinishReason.LENGTH


def first_tokens(request: GenerationRequest) -> tuple[int, ...]:
    """What a prefill node samples, one per choice."""
    banned = request.stop_token_ids if request.min_tokens > 0 else ()
    prompt, seed = request.prompt_token_ids, request.sampling.seed
    return tuple(next_token(prompt, seed, choice, banned) for choice in range(request.num_choices))


def _sampled(sequence: Sequence, choice: int) -> int:
    row = sequence.sample_row(choice)
    assert row.position == sequence.num_tokens
    return next_token(sequence.token_ids, row.params.seed, row.choice, row.banned_token_ids)


def _of_layer(digest: bytes, layer: int) -> bytes:
    return bytes(byte ^ layer for byte in digest)
