"""Which part of a prompt a step computes: page-aligned, complete, and cut only where that pays."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefill_node.chunks import StepTime, StepTimes, Taper, next_chunk

PAGE = 16
BUDGET = 512
GIGABIT = 23040 / 125e6  # SmolLM2's KV of one token at 1 Gbit/s: 0.18 ms
TIME = StepTime(step_s=0.02, token_s=0.0006)  # a 512-token step takes 0.33 s


def taper(send_token_s: float = GIGABIT, time: StepTime = TIME, page_tokens: int = PAGE) -> Taper:
    return Taper(send_token_s, time, page_tokens, min_tokens=max(page_tokens, BUDGET // 8))


def chunks(num_tokens: int, tapered: Taper | None, cached: int = 0) -> list[int]:
    start, sizes = cached, []
    while start < num_tokens:
        sizes.append(next_chunk(start, num_tokens, BUDGET, tapered))
        start += sizes[-1]
    return sizes


def finished_s(sizes: list[int], send_token_s: float, time: StepTime) -> float:
    """When the last byte is sent, if each chunk is sent beside the computation of the next."""
    computed_s = sent_s = 0.0
    for size in sizes:
        computed_s += time.step_s + size * time.token_s
        sent_s = max(sent_s, computed_s) + size * send_token_s
    return sent_s


def test_without_a_taper_a_chunk_is_all_that_fits() -> None:
    assert chunks(1300, None) == [512, 512, 276]


def test_the_end_of_a_long_prompt_is_cut_and_only_the_end() -> None:
    sizes = chunks(2048, taper())
    assert sizes[:3] == [512, 512, 512]
    assert len(sizes) > 4 and sum(sizes[3:]) == 512
    assert sizes[3:] == sorted(sizes[3:], reverse=True)
    assert finished_s(sizes, GIGABIT, TIME) < finished_s([512] * 4, GIGABIT, TIME) - TIME.step_s


@pytest.mark.parametrize(
    ("num_tokens", "tapered"),
    [
        (60, taper()),  # a short prompt
        (512, taper(send_token_s=GIGABIT / 100)),  # a fast link
        (512, taper(time=StepTime(step_s=0.2, token_s=0.0))),  # a step of any size takes as long
        (2048, taper(send_token_s=1.0)),  # a slow link: it is busy with what came before
        (16, taper(send_token_s=100.0)),  # one page
        (2048 + 40, taper(page_tokens=64)),  # less than a page is left
    ],
    ids=["short", "fast link", "launch-bound steps", "slow link", "one page", "rest of a page"],
)
def test_no_cut_where_it_does_not_pay(num_tokens: int, tapered: Taper) -> None:
    assert chunks(num_tokens, tapered) == chunks(num_tokens, None)


def test_a_part_is_never_a_small_share_of_a_step() -> None:
    cheap = StepTime(step_s=1e-6, token_s=0.0006)
    assert min(chunks(2048, taper(time=cheap))) == BUDGET // 8


def test_parts_end_with_pages_of_the_prompt_whatever_was_cached() -> None:
    sizes = chunks(1000, taper(), cached=176)
    assert len(sizes) > 2
    assert [(176 + sum(sizes[:i])) % PAGE for i in range(1, len(sizes))] == [0] * (len(sizes) - 1)


@given(
    start_page=st.integers(0, 100),
    num_tokens=st.integers(1, 3000),
    send_token_s=st.floats(1e-7, 1),
    step_s=st.floats(0, 1),
    token_s=st.floats(0, 0.01),
    page_tokens=st.sampled_from([1, 16, 64, 100]),
)
def test_chunks_make_the_prompt_and_never_cost_more_than_they_save(
    start_page: int,
    num_tokens: int,
    send_token_s: float,
    step_s: float,
    token_s: float,
    page_tokens: int,
) -> None:
    time = StepTime(step_s, token_s)
    start = start_page * page_tokens
    tapered = taper(send_token_s, time, page_tokens)
    sizes = chunks(start + num_tokens, tapered, cached=start)
    assert sum(sizes) == num_tokens
    assert all(0 < size <= BUDGET for size in sizes)
    plain = chunks(start + num_tokens, None, cached=start)
    assert len(sizes) <= len(plain) + 8
    slower_s = finished_s(sizes, send_token_s, time) - finished_s(plain, send_token_s, time)
    assert slower_s <= 1e-6 * (1 + num_tokens * send_token_s)


@dataclass
class Machine:
    """Its steps take ``fixed_s`` and ``token_s`` for each token, a bit more with more context."""

    fixed_s: float = 0.02
    token_s: float = 0.0006

    def chunk(self, times: StepTimes, num_tokens: int, same_prompt: bool = True) -> None:
        times.on_step(num_tokens, self.fixed_s + num_tokens * self.token_s, same_prompt=same_prompt)


def test_nothing_is_known_before_the_first_step() -> None:
    assert StepTimes(BUDGET).estimate() is None


def test_until_sizes_were_compared_the_fixed_part_is_a_share_of_a_full_step() -> None:
    times = StepTimes(BUDGET)
    for _ in range(3):
        Machine().chunk(times, 512)
    time = times.estimate()
    assert time is not None
    full_s = 0.02 + 512 * 0.0006
    assert time.step_s == pytest.approx(full_s / 16)
    assert time.step_s + 512 * time.token_s == pytest.approx(full_s)


def test_a_tiny_step_alone_is_no_more_than_its_own_time() -> None:
    times = StepTimes(BUDGET)
    Machine().chunk(times, 5)
    assert times.estimate() == StepTime(pytest.approx(0.023), 0.0)


def test_three_pairs_of_chunks_that_differ_in_size_give_both_parts() -> None:
    """Here a step's fixed part is more than the guess, so only the samples can say it."""
    times, machine = StepTimes(BUDGET), Machine(fixed_s=0.1)
    for size, same_prompt in ((512, False), (256, True), (64, True), (512, False), (64, True)):
        machine.chunk(times, size, same_prompt=same_prompt)
    assert times.estimate() == StepTime(pytest.approx(0.1), pytest.approx(0.0006))


def test_a_disturbed_step_changes_nothing() -> None:
    times, machine = StepTimes(BUDGET), Machine()
    for disturbed in (False, True, False, False):
        machine.chunk(times, 512, same_prompt=False)
        Machine(fixed_s=2.0 if disturbed else 0.02).chunk(times, 128)
    time = times.estimate()
    assert time is not None and time.step_s == pytest.approx(0.02)


def test_few_samples_do_not_keep_ends_whole_for_ever() -> None:
    times, machine = StepTimes(BUDGET), Machine()
    for _ in range(2):
        machine.chunk(times, 512, same_prompt=False)
        Machine(fixed_s=2.0).chunk(times, 64)
    machine.chunk(times, 512, same_prompt=False)
    few = times.estimate()
    assert few is not None and few.step_s == pytest.approx((0.02 + 512 * 0.0006) / 16)


def test_samples_are_forgotten() -> None:
    times, machine = StepTimes(BUDGET), Machine(fixed_s=0.1)
    for _ in range(3):
        machine.chunk(times, 512, same_prompt=False)
        machine.chunk(times, 64)
    before = times.estimate()
    for _ in range(64):
        machine.chunk(times, 512, same_prompt=False)
    after = times.estimate()
    assert before is not None and after is not None
    assert before.step_s == pytest.approx(0.1)
    assert after.step_s == pytest.approx((0.1 + 512 * 0.0006) / 16)


def test_chunks_of_different_prompts_or_of_like_size_are_not_compared() -> None:
    times = StepTimes(BUDGET)
    times.on_step(512, 0.3, same_prompt=False)
    times.on_step(64, 5.0, same_prompt=False)
    times.on_step(60, 0.1, same_prompt=True)
    time = times.estimate()
    assert time is not None and time.step_s == pytest.approx(0.1 / 60 * 512 / 16)
