"""Requests for tests, with only what a test is about."""

from pdcore.generation import GenerationRequest, RequestId, SamplingParams


def request(
    prompt: tuple[int, ...] | int = 1,
    max_tokens: int = 4,
    *,
    num_choices: int = 1,
    request_id: str = "r",
    seed: int = 0,
    **others: object,
) -> GenerationRequest:
    """``prompt`` is token ids, or how many."""
    token_ids = tuple(i % 2 for i in range(prompt)) if isinstance(prompt, int) else prompt
    return GenerationRequest(
        RequestId(request_id),
        token_ids,
        SamplingParams(seed),
        max_tokens,
        num_choices=num_choices,
        **others,  # type: ignore[arg-type]
    )
