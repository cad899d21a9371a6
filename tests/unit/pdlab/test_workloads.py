"""Workloads: pure functions of (parameters, seed), with the lengths and arrivals they promise."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest

from pdcore.errors import ConfigError
from pdlab.workloads import ARRIVALS, WORKLOADS, Workload, scheduled, vocabulary_of
from pdlab.workloads.arrivals import Burst, Constant, OneAtATime, Poisson
from pdlab.workloads.decode_under_transfers import DecodeUnderTransfers
from pdlab.workloads.lengths import Bimodal, Bucketed, Fixed, Uniform, Zipf
from pdlab.workloads.prompt_file import PromptFile
from pdlab.workloads.trace import TOKENS_PER_HASH, Trace

VOCABULARY = range(100, 1000)

# The first lines of a trace in Mooncake's form: the second prompt begins as the first does.
TRACE = [
    {"timestamp": 2000, "input_length": 700, "output_length": 9, "hash_ids": [7, 8]},
    {"timestamp": 2500, "input_length": 1030, "output_length": 2, "hash_ids": [7, 9, 10]},
    {"timestamp": 5000, "input_length": 3, "output_length": 500, "hash_ids": [11]},
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in TRACE))
    return path


@pytest.fixture
def workloads(trace: Path, tmp_path: Path) -> dict[str, Workload]:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("first\n\nsecond\n")
    return {
        "fixed": Fixed(12, 3, num_requests=4),
        "uniform": Uniform(5, 9, 3, num_requests=50),
        "bimodal": Bimodal(4, 40, 0.25, 3, num_requests=400),
        "zipf": Zipf(8, 64, 1.2, 3, num_requests=400),
        "bucketed": Bucketed((4, 8, 16), 3, num_requests=7),
        "decode_under_transfers": DecodeUnderTransfers(4, 50, 64, 3, period_s=0.5),
        "trace": Trace(str(trace)),
        "prompt_file": PromptFile(str(prompts), 6),
    }


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_same_seed_gives_the_same_requests(name: str, workloads: dict[str, Workload]) -> None:
    workload = workloads[name]
    first = workload.requests(VOCABULARY, "1/0")
    assert workload.requests(VOCABULARY, "1/0") == first
    made_up = [r.prompt for r in first if isinstance(r.prompt, tuple)]
    if made_up:
        assert [r.prompt for r in workload.requests(VOCABULARY, "1/1")] != made_up
        assert all(token in VOCABULARY for prompt in made_up for token in prompt)
    assert all(request.output_tokens > 0 for request in first)


def lengths(workload: Workload) -> list[int]:
    return [len(request.prompt) for request in workload.requests(VOCABULARY, "0")]


def test_fixed_prompts_differ_from_each_other_and_have_one_length() -> None:
    requests = Fixed(12, 3, num_requests=4).requests(VOCABULARY, "0")
    assert len({request.prompt for request in requests}) == 4
    assert {len(request.prompt) for request in requests} == {12}


def test_distinct_prompts_are_repeated_in_turn() -> None:
    prompts = [r.prompt for r in Fixed(8, 1, 5, distinct_prompts=2).requests(VOCABULARY, "0")]
    assert prompts[0] == prompts[2] == prompts[4] != prompts[1] == prompts[3]


def test_uniform_reaches_both_ends_and_no_further() -> None:
    assert set(lengths(Uniform(5, 9, 3, num_requests=200))) == {5, 6, 7, 8, 9}


def test_bimodal_has_its_share_of_long_prompts() -> None:
    counts = Counter(lengths(Bimodal(4, 40, 0.25, 3, num_requests=2000)))
    assert set(counts) == {4, 40}
    assert 0.2 < counts[40] / 2000 < 0.3


def test_zipf_prefers_short_prompts_by_its_exponent() -> None:
    """L in [8, 64], p ~ L ** -2: half as long is four times as likely."""
    counts = Counter(lengths(Zipf(8, 64, 2.0, 3, num_requests=20000)))
    assert min(counts) == 8 and max(counts) <= 64
    ratio = (counts[8] + counts[9]) / (counts[16] + counts[17] + counts[18] + counts[19])
    # The sums of L ** -2 over the same lengths.
    expected = (8**-2 + 9**-2) / sum(length**-2 for length in (16, 17, 18, 19))
    assert ratio == pytest.approx(expected, rel=0.1)


def test_buckets_come_in_turn() -> None:
    assert lengths(Bucketed((4, 8, 16), 3, num_requests=5)) == [4, 8, 16, 4, 8]


def test_lengths_do_not_depend_on_the_vocabulary() -> None:
    workload = Uniform(5, 90, 3, num_requests=20)
    other = [len(r.prompt) for r in workload.requests(range(3, 7), "0")]
    assert other == lengths(workload)


def test_transfers_beside_a_decoding_request_share_a_prompt_and_want_one_token() -> None:
    workload = DecodeUnderTransfers(4, 50, 64, 3, period_s=0.5)
    watched, *shipped = workload.requests(VOCABULARY, "0")
    assert (len(watched.prompt), watched.output_tokens, watched.arrival_s) == (4, 50, 0.0)
    assert [(len(r.prompt), r.output_tokens) for r in shipped] == [(64, 1)] * 3
    assert [r.arrival_s for r in shipped] == [0.0, 0.5, 1.0]
    assert len({r.prompt for r in shipped}) == 1


def test_a_trace_keeps_lengths_times_and_shared_prefixes(trace: Path) -> None:
    first, second, third = Trace(str(trace)).requests(VOCABULARY, "0")
    assert [len(r.prompt) for r in (first, second, third)] == [700, 1030, 3]
    assert [r.output_tokens for r in (first, second, third)] == [9, 2, 500]
    assert [r.arrival_s for r in (first, second, third)] == [0.0, 0.5, 3.0]
    assert first.prompt[:TOKENS_PER_HASH] == second.prompt[:TOKENS_PER_HASH]
    assert first.prompt[TOKENS_PER_HASH:700] != second.prompt[TOKENS_PER_HASH:700]


def test_a_trace_can_be_cut_and_sped_up(trace: Path) -> None:
    workload = Trace(
        str(trace), num_requests=2, speed=2, max_prompt_tokens=600, max_output_tokens=4
    )
    first, second = workload.requests(VOCABULARY, "0")
    assert (len(first.prompt), len(second.prompt)) == (600, 600)
    assert first.prompt[:TOKENS_PER_HASH] == second.prompt[:TOKENS_PER_HASH]
    assert (first.output_tokens, second.output_tokens) == (4, 2)
    assert second.arrival_s == 0.25


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "has no request"),
        ("{", "line 1: is not JSON"),
        ("[]", "expected a table"),
        ('{"timestamp": 0, "input_length": 5}', "'output_length' is missing"),
        (
            '{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]}',
            "1 hash_ids cover 512 tokens of 513",
        ),
    ],
)
def test_a_broken_trace_names_the_line(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ConfigError, match=problem):
        Trace(str(path)).requests(VOCABULARY, "0")


def test_keys_of_a_trace_that_we_do_not_know_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(TRACE[0] | {"session": 5}) + "\n")
    assert len(Trace(str(path)).requests(VOCABULARY, "0")) == 1


def test_prompt_files_are_text_or_json_lines(tmp_path: Path) -> None:
    text = tmp_path / "prompts.txt"
    text.write_text("one\n\ntwo\n")
    requests = PromptFile(str(text), 6, num_requests=3).requests(VOCABULARY, "0")
    assert [(r.prompt, r.output_tokens) for r in requests] == [("one", 6), ("two", 6), ("one", 6)]
    lines = tmp_path / "prompts.jsonl"
    lines.write_text('{"prompt": "a b", "output_tokens": 2}\n{"prompt": "c"}\n')
    requests = PromptFile(str(lines), 6).requests(VOCABULARY, "0")
    assert [(r.prompt, r.output_tokens) for r in requests] == [("a b", 2), ("c", 6)]
    lines.write_text('{"prompt": "a\u2028b"}\r\n', encoding="utf-8")  # a line to str.splitlines
    (request,) = PromptFile(str(lines), 6).requests(VOCABULARY, "0")
    assert request.prompt == "a\u2028b"


@pytest.mark.parametrize("name", ["missing.txt", "empty.txt"])
def test_a_prompt_file_without_prompts_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(ConfigError, match=name):
        PromptFile(str(tmp_path / name), 6).requests(VOCABULARY, "0")


def test_arrivals() -> None:
    requests = Fixed(4, 1, num_requests=300).requests(VOCABULARY, "0")

    def offsets(arrivals) -> list[float | None]:
        return [request.arrival_s for request in scheduled(requests, arrivals, "0")]

    assert set(offsets(OneAtATime())) == {None}
    assert set(offsets(Burst())) == {0.0}
    assert offsets(Constant(per_s=4))[:3] == [0.0, 0.25, 0.5]
    poisson = offsets(Poisson(per_s=10))
    gaps = [b - a for a, b in pairwise(poisson)]
    assert min(gaps) >= 0
    assert mean(gaps) == pytest.approx(0.1, rel=0.2)
    assert offsets(Poisson(per_s=10)) == poisson
    assert {*ARRIVALS} == {"one_at_a_time", "burst", "constant", "poisson"}


def test_without_arrivals_a_workload_keeps_its_own(trace: Path) -> None:
    requests = Trace(str(trace)).requests(VOCABULARY, "0")
    assert scheduled(requests, None, "0") == requests
    assert [r.arrival_s for r in scheduled(requests, Burst(), "0")] == [0.0, 0.0, 0.0]


def test_the_vocabulary_leaves_out_special_tokens(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 49152}')
    assert vocabulary_of(tmp_path) == range(256, 49152)
    (tmp_path / "config.json").write_text('{"vocab_size": 100}')
    assert vocabulary_of(tmp_path) == range(50, 100)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="vocab_size"):
        vocabulary_of(tmp_path)
