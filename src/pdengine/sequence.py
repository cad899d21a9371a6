"""One choice of a request while it is computed: its tokens, its pages, and how far it has come.

``token_ids`` is the prompt and every generated token that is part of the output, so the KV of token
i lies in page ``pages[i // page_tokens]``, and ``num_computed`` says for how many tokens it does.
``pages`` is a list of its own, which ``give_up_pages`` hands out once; the sequence never calls the
pool. The request never changes; only the event loop's thread changes a sequence.
"""

from collections.abc import Iterable

from pdcore.generation import FinishReason, GenerationRequest
from pdengine.sampler import SampleRow


class Sequence:
    """Also stands for a prompt whose first tokens, one per choice, are still to be sampled.

    ``num_computed`` starts above zero where the first pages came from the prefix cache or over the
    wire. ``finish_reason`` is None until ``append`` has met the end.
    """

    __slots__ = ("choice", "finish_reason", "num_computed", "pages", "request", "token_ids")

    def __init__(
        self, request: GenerationRequest, choice: int, pages: Iterable[int], num_computed: int = 0
    ) -> None:
        self.request = request
        self.choice = choice
        self.token_ids = list(request.prompt_token_ids)
        self.pages = list(pages)
        self.num_computed = num_computed
        self.finish_reason: FinishReason | None = None

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_generated(self) -> int:
        """Completion tokens for usage and limits: a stop token counts, though it is not kept."""
        stop_token = self.finish_reason is FinishReason.STOP
        return len(self.token_ids) - self.num_prompt_tokens + stop_token

    @property
    def num_remaining(self) -> int:
        """Tokens whose KV is still to be computed: 1 between two decode steps."""
        return len(self.token_ids) - self.num_computed

    @property
    def output_token_ids(self) -> list[int]:
        """What the client gets: every generated token but a stop token."""
        return self.token_ids[self.num_prompt_tokens :]

    def append(self, token: int) -> FinishReason | None:
        """Take the next token; say whether, and why, it is the last one.

        STOP means that ``token`` is a stop token: it counts as generated, but is not part of the
        output. LENGTH means that it is the ``max_tokens``-th and belongs to the output.
        """
        assert self.finish_reason is None, "a finished sequence takes no more tokens"
        if token in self.request.stop_token_ids:
            self.finish_reason = FinishReason.STOP
            return self.finish_reason
        self.token_ids.append(token)
        if self.num_generated >= self.request.max_tokens:
            self.finish_reason = FinishReason.LENGTH
        return self.finish_reason

    def fork(self, choice: int, pages: Iterable[int]) -> "Sequence":
        """Another choice that continues from here; for ``pages`` it needs references of its own."""
        fork = Sequence(self.request, choice, pages, self.num_computed)
        fork.token_ids = list(self.token_ids)
        return fork

    def give_up_pages(self) -> list[int]:
        """Hand the pages to the caller, to release. All KV would have to be computed again."""
        pages, self.pages, self.num_computed = self.pages, [], 0
        return pages

    def sample_row(self, choice: int | None = None) -> SampleRow:
        """What the sampler needs for the next token (of ``choice``, by default its own)."""
        request = self.request
        may_stop = self.num_generated >= request.min_tokens
        return SampleRow(
            params=request.sampling,
            choice=self.choice if choice is None else choice,
            position=self.num_tokens,
            banned_token_ids=() if may_stop else request.stop_token_ids,
        )
