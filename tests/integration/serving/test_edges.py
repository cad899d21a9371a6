"""The edges of one request, through all three processes, on the real model."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from serving import Cluster

SEQUENTIAL = {"mode": "sequential"}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
SYSTEM = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n"
)


def chat(cluster: Cluster, **fields: Any) -> Any:
    response = cluster.post("/v1/chat/completions", messages=QUESTION, **fields)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_capital_of_france(float32_cluster: Cluster, bfloat16_cluster: Cluster) -> None:
    for cluster in (float32_cluster, bfloat16_cluster):
        answer = chat(cluster)
        assert answer["choices"][0]["message"]["content"] == ANSWER
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize("params", [SEQUENTIAL, {"placement": "colocated"}], ids=["1P1D", "local"])
def test_max_tokens_1_is_the_prefill_nodes_own_token(
    float32_cluster: Cluster, salts: Iterator[str], params: dict[str, str]
) -> None:
    answer = chat(float32_cluster, max_tokens=1, kv_transfer_params=params, cache_salt=next(salts))
    assert answer["choices"][0]["message"]["content"] == "The"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 1
    float32_cluster.assert_no_page_in_use()


def test_end_of_text_as_the_first_token(float32_cluster: Cluster) -> None:
    """The whole answer is part of the prompt: the next token ends it."""
    question = f"<|im_start|>user\n{QUESTION[0]['content']}<|im_end|>\n"
    prompt = f"{SYSTEM}{question}<|im_start|>assistant\n{ANSWER}"
    answer = float32_cluster.complete(prompt=prompt, max_tokens=8)
    assert answer["choices"][0]["text"] == ""
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 1
    float32_cluster.assert_no_page_in_use()


def test_a_stop_string_in_the_first_token(float32_cluster: Cluster) -> None:
    answer = chat(float32_cluster, stop=["The"])
    assert answer["choices"][0]["message"]["content"] == ""
    assert answer["choices"][0]["finish_reason"] == "stop"
    float32_cluster.assert_no_page_in_use()


def test_a_stop_string_across_tokens_never_leaks(float32_cluster: Cluster) -> None:
    whole = chat(float32_cluster, stop=["of France is"])
    assert whole["choices"][0]["message"]["content"] == "The capital "
    streamed = stream_text(float32_cluster, stop=["of France is"])
    assert streamed == "The capital "
    float32_cluster.assert_no_page_in_use()


def stream_text(cluster: Cluster, **fields: Any) -> str:
    response = cluster.post("/v1/chat/completions", messages=QUESTION, stream=True, **fields)
    events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    return "".join(c["delta"].get("content") or "" for k in chunks for c in k["choices"])


@pytest.mark.parametrize("num_tokens", [1, 15, 16, 17, 32, 33])
def test_prompts_around_a_page(
    float32_cluster: Cluster, salts: Iterator[str], num_tokens: int
) -> None:
    prompt = [(7 + 11 * i) % 40000 + 20 for i in range(num_tokens)]
    arms = [{"placement": "colocated"}, {"mode": "sequential_layer"}, {"mode": "auto"}]
    answers = [
        float32_cluster.complete(
            prompt=prompt,
            max_tokens=18,
            ignore_eos=True,
            kv_transfer_params=arm,
            cache_salt=next(salts),
        )
        for arm in arms
    ]
    assert answers[0]["usage"]["prompt_tokens"] == num_tokens
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1
    float32_cluster.assert_no_page_in_use()


def test_a_full_prefix_hit(float32_cluster: Cluster, salts: Iterator[str]) -> None:
    """A prompt of exactly two pages, twice: all but the last token's page comes from the cache."""
    prompt, salt = [(5 + 13 * i) % 40000 + 20 for i in range(32)], next(salts)
    first, second = (
        float32_cluster.complete(prompt=prompt, max_tokens=8, ignore_eos=True, cache_salt=salt)
        for _ in range(2)
    )
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 16
    assert second["choices"][0]["text"] == first["choices"][0]["text"]


def test_min_tokens_and_ignore_eos(float32_cluster: Cluster) -> None:
    answer = chat(float32_cluster, min_tokens=20, max_tokens=24)
    assert answer["usage"]["completion_tokens"] >= 20
    answer = chat(float32_cluster, ignore_eos=True, max_tokens=24)
    assert answer["usage"]["completion_tokens"] == 24


def test_usage_and_timeline_are_streamed(float32_cluster: Cluster) -> None:
    response = float32_cluster.post(
        "/v1/chat/completions",
        messages=QUESTION,
        stream=True,
        stream_options={"include_usage": True},
        timeline=True,
        kv_transfer_params=SEQUENTIAL,
    )
    last = json.loads(response.text.split("\n\n")[-3].removeprefix("data: "))
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 8
    transfer = last["timeline"]["transfer"]
    assert transfer["mode"] == "sequential"
    assert transfer["page_bytes"] == transfer["wire_bytes"] > 0
    assert sum(transfer["shares"].values()) == pytest.approx(transfer["duration_s"], rel=1e-6)
