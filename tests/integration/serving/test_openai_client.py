"""The official client, unchanged."""

from collections.abc import Iterator

import httpx
import openai
import pytest

from serving import Cluster

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."


@pytest.fixture
def client(float32_cluster: Cluster) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{float32_cluster.url}/v1",
        api_key="unused",
        max_retries=0,
        http_client=httpx.Client(trust_env=False),
    ) as client:
        yield client


def test_models(client: openai.OpenAI, float32_cluster: Cluster) -> None:
    assert [model.id for model in client.models.list()] == [float32_cluster.model]
    assert client.models.retrieve(float32_cluster.model).id == float32_cluster.model


def test_chat(client: openai.OpenAI, float32_cluster: Cluster) -> None:
    answer = client.chat.completions.create(
        model=float32_cluster.model, messages=QUESTION, temperature=0
    )
    assert answer.choices[0].message.content == ANSWER
    assert answer.usage is not None and answer.usage.completion_tokens == 8


def test_chat_streamed_with_usage(client: openai.OpenAI, float32_cluster: Cluster) -> None:
    chunks = list(
        client.chat.completions.create(
            model=float32_cluster.model,
            messages=QUESTION,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == ANSWER
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 8
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"


def test_completion_with_choices(client: openai.OpenAI, float32_cluster: Cluster) -> None:
    answer = client.completions.create(
        model=float32_cluster.model, prompt="One, two,", n=2, seed=3, max_tokens=5
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    streamed = client.completions.create(
        model=float32_cluster.model, prompt="One, two,", n=2, seed=3, max_tokens=5, stream=True
    )
    texts = ["", ""]
    for chunk in streamed:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in answer.choices], "a seed is a seed"


def test_errors_are_the_clients_own(client: openai.OpenAI, float32_cluster: Cluster) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-9", messages=QUESTION)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(
            model=float32_cluster.model, messages=QUESTION, temperature=7
        )
    with pytest.raises(openai.BadRequestError, match=r"9000 tokens.*context holds \d+"):
        client.completions.create(model=float32_cluster.model, prompt=[5] * 9000)


def test_an_extra_body_picks_the_mode(client: openai.OpenAI, float32_cluster: Cluster) -> None:
    with pytest.raises(openai.BadRequestError, match="sequential_layer"):
        client.completions.create(
            model=float32_cluster.model,
            prompt="x",
            extra_body={"kv_transfer_params": {"mode": "teleport"}},
        )
