"""A sequence: its counts, how it ends, how it branches, and what it asks of the sampler."""

from dataclasses import replace

import pytest

from pdcore.generation import FinishReason, GenerationRequest, RequestId, SamplingParams
from pdengine.sampler import SampleRow
from pdengine.sequence import Sequence

STOP, OTHER_STOP = 2, 3
REQUEST = GenerationRequest(
    request_id=RequestId("r"),
    prompt_token_ids=(10, 11, 12, 13, 14),
    sampling=SamplingParams(seed=7),
    max_tokens=3,
    num_choices=2,
    stop_token_ids=(STOP, OTHER_STOP),
)


def test_a_new_sequence_is_its_prompt() -> None:
    sequence = Sequence(REQUEST, 0, [8, 9], num_computed=4)
    assert sequence.token_ids == [10, 11, 12, 13, 14]
    assert sequence.pages == [8, 9]
    assert (sequence.num_prompt_tokens, sequence.num_tokens) == (5, 5)
    assert (sequence.num_computed, sequence.num_remaining) == (4, 1)
    assert sequence.num_generated == 0
    assert sequence.output_token_ids == []
    assert sequence.finish_reason is None


def test_append_until_max_tokens() -> None:
    sequence = Sequence(REQUEST, 0, [8, 9], num_computed=5)
    assert sequence.append(20) is None
    assert (sequence.num_generated, sequence.num_remaining) == (1, 1)
    assert sequence.append(21) is None
    assert sequence.append(22) is FinishReason.LENGTH
    assert sequence.finish_reason is FinishReason.LENGTH
    assert sequence.output_token_ids == [20, 21, 22]
    assert sequence.num_generated == 3
    assert sequence.token_ids == [10, 11, 12, 13, 14, 20, 21, 22]


@pytest.mark.parametrize("stop", [STOP, OTHER_STOP])
def test_a_stop_token_counts_but_is_no_output(stop: int) -> None:
    sequence = Sequence(REQUEST, 0, [])
    sequence.append(20)
    assert sequence.append(stop) is FinishReason.STOP
    assert sequence.output_token_ids == [20]
    assert sequence.num_generated == 2
    assert sequence.num_tokens == 6


def test_a_stop_token_may_be_the_first_token() -> None:
    sequence = Sequence(REQUEST, 0, [])
    assert sequence.append(STOP) is FinishReason.STOP
    assert sequence.output_token_ids == []
    assert sequence.num_generated == 1


def test_a_stop_token_as_the_last_one_allowed_is_a_stop() -> None:
    sequence = Sequence(replace(REQUEST, max_tokens=1), 0, [])
    assert sequence.append(STOP) is FinishReason.STOP


def test_one_token_is_enough_where_max_tokens_is_one() -> None:
    sequence = Sequence(replace(REQUEST, max_tokens=1), 0, [])
    assert sequence.append(20) is FinishReason.LENGTH


@pytest.mark.parametrize("last", [STOP, 22])
def test_a_finished_sequence_takes_no_token(last: int) -> None:
    sequence = Sequence(replace(REQUEST, max_tokens=1), 0, [])
    sequence.append(last)
    with pytest.raises(AssertionError, match="finished"):
        sequence.append(23)


def test_the_page_list_is_its_own() -> None:
    pages = [8, 9]
    sequence = Sequence(REQUEST, 0, pages)
    sequence.pages.append(10)
    assert pages == [8, 9]


def test_a_fork_goes_its_own_way() -> None:
    prompt = Sequence(REQUEST, 0, [8, 9], num_computed=5)
    fork = prompt.fork(1, prompt.pages)
    assert (fork.request, fork.choice, fork.pages, fork.num_computed) == (REQUEST, 1, [8, 9], 5)
    fork.append(20)
    fork.pages[1] = 10
    assert (prompt.token_ids, prompt.pages) == ([10, 11, 12, 13, 14], [8, 9])
    assert fork.output_token_ids == [20]


def test_a_fork_keeps_what_was_generated() -> None:
    sequence = Sequence(REQUEST, 0, [8, 9], num_computed=5)
    sequence.append(20)
    assert sequence.fork(1, [7]).output_token_ids == [20]


def test_pages_are_given_up_once_and_tokens_kept() -> None:
    sequence = Sequence(REQUEST, 0, [8, 9], num_computed=5)
    sequence.append(20)
    assert sequence.give_up_pages() == [8, 9]
    assert sequence.give_up_pages() == []
    assert (sequence.num_computed, sequence.num_remaining) == (0, 6)
    assert sequence.output_token_ids == [20]


def test_sample_row_is_for_the_next_position() -> None:
    sequence = Sequence(REQUEST, 1, [])
    sequence.append(20)
    assert sequence.sample_row() == SampleRow(REQUEST.sampling, choice=1, position=6)


def test_a_prompt_is_sampled_for_every_choice() -> None:
    prompt = Sequence(REQUEST, 0, [])
    rows = [prompt.sample_row(choice) for choice in range(2)]
    assert [(row.choice, row.position) for row in rows] == [(0, 5), (1, 5)]


def test_stop_tokens_are_banned_until_min_tokens() -> None:
    sequence = Sequence(replace(REQUEST, min_tokens=2), 0, [])
    banned = []
    for token in (20, 21):
        banned.append(sequence.sample_row().banned_token_ids)
        sequence.append(token)
    assert banned == [(STOP, OTHER_STOP), (STOP, OTHER_STOP)]
    assert sequence.sample_row().banned_token_ids == ()
