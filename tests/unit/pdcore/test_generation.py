"""The values of one request."""

from pdcore.generation import SamplingParams, Usage


def test_temperature_zero_is_greedy() -> None:
    assert SamplingParams(seed=1, temperature=0).is_greedy
    assert not SamplingParams(seed=1, temperature=1e-9).is_greedy


def test_usage_adds_up_and_cached_tokens_are_prompt_tokens() -> None:
    assert Usage(prompt_tokens=3, completion_tokens=4, cached_tokens=2).total_tokens == 7
