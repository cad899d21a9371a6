"""The anchor: the same tokens colocated and disaggregated, whatever way the pages travel.

Asserted in float32, on the real model. In bfloat16 a request alone gives the same tokens in every
mode; in a batch of another shape a tie may break the other way, so there a rate is reported only.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kvtransfer.limits import MODES
from serving import Cluster, running_cluster

PROMPTS = (
    "The three primary colours are",
    "Once upon a time, in a village by the sea, " * 12 + "there lived",
    "def fibonacci(n):\n    ",
    "List of European capitals: Paris is the capital of France. " * 6 + "Rome is the capital of",
)
NUM_TOKENS = 20
COLOCATED = {"placement": "colocated"}


@pytest.fixture(scope="module", params=[16, 64], ids=["page16", "page64"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == 16:
        yield request.getfixturevalue("float32_cluster")
        return
    arguments = ("--dtype", "float32", "--set", "engine.page_tokens=64")
    with running_cluster(*arguments, "--set", "engine.step_tokens=64") as started:
        yield started


def ask(cluster: Cluster, prompt: str, params: dict[str, str], salt: str, **fields: Any) -> Any:
    answer = cluster.complete(
        prompt=prompt,
        max_tokens=NUM_TOKENS,
        ignore_eos=True,
        cache_salt=salt,
        kv_transfer_params=params,
        return_token_ids=True,
        timeline=True,
        **fields,
    )
    if "mode" in params:
        assert answer["timeline"]["transfer"]["mode"] == params["mode"]
    else:
        assert answer["timeline"].get("transfer") is None
    return answer


def tokens(answer: Any) -> list[list[int]]:
    return [choice["token_ids"] for choice in answer["choices"]]


@pytest.mark.parametrize("fields", [{}, {"n": 4}], ids=["n1", "n4"])
def test_greedy_tokens_are_the_same_in_every_mode(
    cluster: Cluster, salts: Iterator[str], fields: dict[str, Any]
) -> None:
    prompts = PROMPTS[:3] if not fields else PROMPTS[1:2]
    for prompt in prompts:
        alone = tokens(ask(cluster, prompt, COLOCATED, next(salts), **fields))
        assert all(len(choice) == NUM_TOKENS for choice in alone)
        for mode in MODES:
            salt = next(salts)
            cold = ask(cluster, prompt, {"mode": mode}, salt, **fields)
            assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
            assert tokens(cold) == alone, mode
    cluster.assert_no_page_in_use()


def test_a_prefix_hit_changes_no_token(cluster: Cluster, salts: Iterator[str]) -> None:
    prompt, salt = PROMPTS[1], next(salts)
    cold = ask(cluster, prompt, {"mode": "pipelined"}, salt)
    for mode in MODES:
        hit = ask(cluster, prompt, {"mode": mode}, salt)
        assert hit["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        assert tokens(hit) == tokens(cold), mode
    local_salt = next(salts)
    for _ in range(2):
        assert tokens(ask(cluster, prompt, COLOCATED, local_salt)) == tokens(cold)


def test_a_batch_changes_no_token(cluster: Cluster, salts: Iterator[str]) -> None:
    """All modes and the colocated arm at once, on different prompts, n 1 and 4."""
    fields = [{"n": 1}, {"n": 4}]
    alone = {
        (prompt, n["n"]): tokens(ask(cluster, prompt, COLOCATED, next(salts), **n))
        for prompt in PROMPTS
        for n in fields
    }
    arms = [{"mode": mode} for mode in MODES] + [COLOCATED]
    requests = [
        (PROMPTS[i % len(PROMPTS)], arm, fields[i // 2 % 2]) for i, arm in enumerate(2 * arms)
    ]
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(
            pool.map(lambda r: tokens(ask(cluster, r[0], r[1], next(salts), **r[2])), requests)
        )
    for (prompt, arm, n), answer in zip(requests, answers, strict=True):
        assert answer == alone[prompt, n["n"]], (prompt[:20], arm, n)
    cluster.assert_no_page_in_use()


def test_seeded_samples_are_the_same_everywhere(cluster: Cluster, salts: Iterator[str]) -> None:
    sampled = {"n": 4, "temperature": 0.8, "top_p": 0.95, "seed": 11}
    local = tokens(ask(cluster, PROMPTS[0], COLOCATED, next(salts), **sampled))
    assert len({tuple(choice) for choice in local}) > 1, "choices differ"
    with ThreadPoolExecutor(len(MODES)) as pool:
        batched = list(
            pool.map(lambda m: ask(cluster, PROMPTS[0], {"mode": m}, next(salts), **sampled), MODES)
        )
    assert [tokens(answer) for answer in batched] == [local] * len(MODES), "alone and in a batch"
    other = tokens(
        ask(cluster, PROMPTS[0], {"mode": "auto"}, next(salts), **{**sampled, "seed": 12})
    )
    assert other != local


def test_bfloat16_alone_is_the_same_in_every_mode(
    bfloat16_cluster: Cluster, salts: Iterator[str]
) -> None:
    for prompt in PROMPTS[1:3]:
        alone = tokens(ask(bfloat16_cluster, prompt, COLOCATED, next(salts)))
        for mode in MODES:
            answer = ask(bfloat16_cluster, prompt, {"mode": mode}, next(salts))
            assert tokens(answer) == alone, mode


def test_bfloat16_agreement_in_batches_is_reported(
    bfloat16_cluster: Cluster, salts: Iterator[str], record_property: Any
) -> None:
    alone = {
        prompt: tokens(ask(bfloat16_cluster, prompt, COLOCATED, next(salts))) for prompt in PROMPTS
    }
    requests = [(prompt, {"mode": mode}) for prompt in PROMPTS for mode in MODES]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda r: tokens(ask(bfloat16_cluster, *r, next(salts))), requests))
    same = sum(answer == alone[r[0]] for r, answer in zip(requests, answers, strict=True))
    record_property("bfloat16_agreement", f"{same}/{len(requests)}")
    print(f"bfloat16: {same} of {len(requests)} batched requests have the tokens they have alone")
    bfloat16_cluster.assert_no_page_in_use()
