"""Limits of this model and cluster, defaults, and what a request is when it leaves the edge."""

import json
from dataclasses import replace
from typing import Any

import pytest

from pdcore.errors import InvalidRequest, NoCapacity, PromptTooLong, UnknownModel
from pdcore.generation import GenerationRequest, RequestId
from pdcore.settings import RouterSettings
from router.model_info import ModelInfo
from router.openai_api import read_chat, read_completion
from router.prepare import Preparer
from tiny_text import byte_level_tokenizer, tiny_text

MODEL = ModelInfo("tiny", vocab_size=330, eos_token_ids=(1, 5))
PREPARER = Preparer(tiny_text(), MODEL, RouterSettings(max_choices=4, default_timeout_s=9.0))


async def prepare(context_tokens: int | None = 32, **fields: Any) -> GenerationRequest:
    read = read_chat if "messages" in fields else read_completion
    body = fields if "messages" in fields else {"prompt": [10, 11, 12]} | fields
    api = read(json.dumps(body).encode())
    return await PREPARER.prepare(api, RequestId("r1"), context_tokens)


async def test_a_plain_request() -> None:
    request = await prepare(model="tiny", seed=7)
    assert request.prompt_token_ids == (10, 11, 12)
    assert request.request_id == "r1"
    assert (request.max_tokens, request.min_tokens, request.num_choices) == (16, 0, 1)
    assert request.sampling.seed == 7
    assert request.stop_token_ids == (1, 5)
    assert request.timeout_s == 9.0


async def test_everything_that_may_be_asked_for() -> None:
    request = await prepare(
        max_tokens=8,
        min_tokens=2,
        temperature=0,
        top_p=0.5,
        top_k=3,
        min_p=0.1,
        n=4,
        ignore_eos=True,
        cache_salt="mine",
        timeout=1.5,
        seed=-1,
    )
    sampling = request.sampling
    assert (request.max_tokens, request.min_tokens, request.num_choices) == (8, 2, 4)
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (
        0,
        0.5,
        3,
        0.1,
    )
    assert sampling.is_greedy
    assert sampling.seed == 2**64 - 1
    assert (request.stop_token_ids, request.cache_salt, request.timeout_s) == ((), "mine", 1.5)


async def test_a_seed_is_drawn_when_none_is_given() -> None:
    seeds = {(await prepare()).sampling.seed for _ in range(4)}
    assert len(seeds) == 4


@pytest.mark.parametrize("top_k", [-1, 0, 330, 10**30])
async def test_top_k_that_filters_nothing(top_k: int) -> None:
    assert (await prepare(top_k=top_k)).sampling.top_k is None


async def test_max_tokens_is_clipped_to_what_the_context_has_left() -> None:
    assert (await prepare(max_tokens=10**40)).max_tokens == 29
    assert (await prepare(max_tokens=29, context_tokens=20)).max_tokens == 17


async def test_a_chat_may_use_all_that_is_left() -> None:
    request = await prepare(messages=[{"role": "user", "content": "hi"}])
    assert request.max_tokens + len(request.prompt_token_ids) == 32


async def test_the_model_has_to_be_this_one() -> None:
    with pytest.raises(UnknownModel, match="no model 'other'; this server has 'tiny'"):
        await prepare(model="other")


@pytest.mark.parametrize("token_id", [-1, 330, 2**70])
async def test_token_ids_of_this_vocabulary(token_id: int) -> None:
    with pytest.raises(InvalidRequest, match=r"token id .*; this model's are 0 to 329") as caught:
        await prepare(prompt=[1, token_id])
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", "a <think>"),
        ("messages", [{"role": "user", "content": "a <think>"}]),
    ],
)
async def test_text_whose_tokens_the_model_lacks(field: str, value: Any) -> None:
    """Many fine-tunes add a token to the tokenizer, but no row to the model's embedding."""
    added = byte_level_tokenizer().token_to_id("<think>")
    small = replace(PREPARER, model=replace(MODEL, vocab_size=added))
    read = read_chat if field == "messages" else read_completion
    api = read(json.dumps({field: value}).encode())
    expected = f"token id {added} in {field}; this model's are 0 to {added - 1}"
    with pytest.raises(InvalidRequest, match=expected) as caught:
        await small.prepare(api, RequestId("r1"), 100)
    assert caught.value.param == field


async def test_a_mode_needs_a_transfer() -> None:
    """Where the cluster places requests colocated, a mode would be ignored in silence."""
    colocated = replace(PREPARER, settings=RouterSettings(placement="colocated"))

    async def ask(**params: str) -> None:
        body = json.dumps({"prompt": [10], "kv_transfer_params": params}).encode()
        await colocated.prepare(read_completion(body), RequestId("r1"), 100)

    await ask()
    await ask(mode="bulk", placement="disaggregated")
    with pytest.raises(InvalidRequest, match=r"'bulk', but .*router\.placement is colo") as caught:
        await ask(mode="bulk")
    assert caught.value.param == "kv_transfer_params.mode"


async def test_choices_are_limited() -> None:
    with pytest.raises(InvalidRequest, match="n must be at most 4, not 5"):
        await prepare(n=5)


async def test_min_tokens_beyond_max_tokens() -> None:
    with pytest.raises(InvalidRequest, match=r"min_tokens \(17\) is more than max_tokens \(16\)"):
        await prepare(min_tokens=17)


@pytest.mark.parametrize(("length", "context", "shown"), [(32, 32, 32), (20, 20, 20), (33, 8, 8)])
async def test_a_long_prompt_is_refused_with_both_lengths(
    length: int, context: int, shown: int
) -> None:
    with pytest.raises(PromptTooLong) as caught:
        await prepare(prompt=[10] * length, context_tokens=context)
    assert f"{length} tokens" in caught.value.message and f"holds {shown}" in caught.value.message


async def test_without_a_node_nothing_fits() -> None:
    """Its context is the nodes' to say; a request that is wrong in itself is told so first."""
    with pytest.raises(NoCapacity, match="no node that serves this model answers"):
        await prepare(context_tokens=None)
    with pytest.raises(UnknownModel):
        await prepare(context_tokens=None, model="other")


async def test_the_longest_prompt_that_fits() -> None:
    assert (await prepare(prompt=[10] * 31)).max_tokens == 1


async def test_min_tokens_that_the_context_cannot_hold() -> None:
    with pytest.raises(PromptTooLong, match="min_tokens is 30, but a prompt of 3 tokens leaves 29"):
        await prepare(min_tokens=30, max_tokens=30)
