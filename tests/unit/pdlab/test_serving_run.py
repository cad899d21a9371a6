"""The pure parts of a serving run: the order of runs, exposed time, requests, the outcome."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import sample_records
from pdcore.errors import ConfigError
from pdlab.bench import Model
from pdlab.client import Answer
from pdlab.exposed import exposed_time
from pdlab.outcome import outcome_of
from pdlab.records import RequestRecord, ServingRecord
from pdlab.runner import body_of, num_at_once, run_serving
from pdlab.scenario import Arm, serving_scenario
from pdlab.schedule import Run, link_groups, num_runs, runs_of
from pdlab.serving_records import header_of, recorded
from pdlab.workloads import WorkRequest

TABLE = {
    "name": "order",
    "about": "For a test.",
    "workload": {"kind": "fixed", "prompt_tokens": 8, "output_tokens": 2, "num_requests": 4},
    "arms": [{"name": "a", "mode": "auto"}, {"name": "b", "mode": "bulk"}],
    "links": [{"rtt": "0ms"}, {"rtt": "50ms"}],
    "repetitions": 6,
    "warmup": 2,
}


BURST = {"kind": "burst"}


def scenario(**fields: object):
    return serving_scenario({**TABLE, **fields}, "order.toml")


@pytest.mark.parametrize("interleave", [False, True])
def test_blocks_hold_every_arm_once_and_differ_in_order(interleave: bool) -> None:
    plan = scenario(interleave_links=interleave, at_once=(1, 4), arrivals=BURST)
    groups = link_groups(plan)
    assert groups == ([(0, 1)] if interleave else [(0,), (1,)])
    runs = [run for links in groups for run in runs_of(plan, links, "0/1")]
    assert len(runs) == num_runs(plan) == 2 * 2 * 2 * (6 + 2)
    counts = Counter((run.arm.name, run.link, run.num_requests, run.repetition) for run in runs)
    assert set(counts.values()) == {1, 2}  # each block once; both warm-ups are repetition 0
    assert all(run.is_warmup == (run.repetition == 0) for run in runs)
    block = 4 * (2 if interleave else 1)
    orders = [
        [(run.arm.name, run.link, run.num_requests) for run in runs[start : start + block]]
        for start in range(0, block * 8, block)
    ]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert [*runs_of(plan, groups[0], "0/1")] == [*runs_of(plan, groups[0], "0/1")]
    assert [*runs_of(plan, groups[0], "0/1")] != [*runs_of(plan, groups[0], "0/2")]


def test_an_arm_may_take_part_in_some_blocks_only() -> None:
    arms = [{"name": "a"}, {"name": "slow", "every": 3, "num_requests": 1}]
    plan = scenario(arms=arms, links=[{}], at_once=(2,), arrivals=BURST, warmup=1, repetitions=6)
    runs = [*runs_of(plan, (0,), "0/1")]
    assert [run.repetition for run in runs if run.arm.name == "slow"] == [0, 3, 6]
    assert {run.num_requests for run in runs if run.arm.name == "slow"} == {1}
    assert len(runs) == num_runs(plan) == 7 + 3


def timeline() -> dict[str, object]:
    """Sent at 10.02, computing from 10.07 to 11.57 (a 50 ms way each), committed at 11.60."""

    def part(clock_s: float, **spans: tuple[float, float]) -> dict[str, object]:
        listed = [{"name": n, "start_s": s, "duration_s": d} for n, (s, d) in spans.items()]
        return {"clock_s": clock_s, "spans": listed}

    return {
        "router": part(10.0, prepare=(0.0, 0.02), first_token=(0.02, 1.6)),
        "prefill": part(10.045, queue=(0.0, 0.025), prefill=(0.025, 1.5)),
        "decode": part(10.021, receive=(0.0, 1.579), first_token=(0.0, 1.58)),
        "transfer": {"wire_bytes": 5},
    }


def test_exposed_time_is_before_prefill_and_after_it() -> None:
    exposed = exposed_time(timeline())
    assert exposed is not None
    assert exposed.to_prefill_s == pytest.approx(0.05)
    assert exposed.to_commit_s == pytest.approx(0.03)
    assert exposed.total_s == pytest.approx(0.08)


@pytest.mark.parametrize("without", [None, {"prefill": None}])
def test_nothing_is_exposed_without_a_prefill_node(without: dict[str, object] | None) -> None:
    assert exposed_time(None if without is None else timeline() | without) is None


def test_a_request_says_what_its_arm_wants() -> None:
    body = body_of(WorkRequest((5, 6), 3), Arm("x", mode="bulk"), "salt")
    assert body["prompt"] == (5, 6)
    assert body["max_tokens"] == 3
    assert body["cache_salt"] == "salt"
    assert body["temperature"] == 0
    assert body["kv_transfer_params"] == {"placement": "disaggregated", "mode": "bulk"}
    colocated = body_of(WorkRequest("text", 3), Arm("x", placement="colocated"), "salt")
    assert colocated["kv_transfer_params"] == {"placement": "colocated"}


def test_how_many_arrive_at_once() -> None:
    def requests(*arrivals: float | None) -> list[WorkRequest]:
        return [WorkRequest("p", 1, arrival_s) for arrival_s in arrivals]

    assert num_at_once(requests(None, None)) == 1
    assert num_at_once(requests(0.0, 0.0, 0.0)) == 3
    assert num_at_once(requests(0.0, 0.5)) == 1
    assert num_at_once(requests(0.0, 0.0, 0.4)) == 1  # not a burst


REQUEST = replace(sample_records.REQUEST, arm="a", repetition=1)


def outcome(*requests: RequestRecord):
    return outcome_of(ServingRecord(header_of(scenario()), (), requests, complete=True))


def test_an_outcome_is_good_when_all_arms_gave_the_same_tokens() -> None:
    good = outcome(REQUEST, replace(REQUEST, arm="b"), replace(REQUEST, arm="b", link=1))
    assert good.is_good
    assert str(good) == "3 requests; tokens identical in all arms for all 1 prompts"


def test_an_outcome_names_failures_and_differences() -> None:
    other = replace(REQUEST, arm="b", token_ids=(1, 3))
    failed = replace(REQUEST, arm="b", repetition=2, status="transfer_error", error="stalled")
    bad = outcome(REQUEST, other, failed)
    assert not bad.is_good
    assert "1 failed, the first in arm b: stalled" in str(bad)
    assert "tokens DIFFER between arms for 1 of 1" in str(bad)


def test_warm_up_counts_in_nothing() -> None:
    warmup = replace(REQUEST, arm="b", repetition=0, token_ids=(9,), warmup=True)
    assert outcome(REQUEST, replace(REQUEST, arm="b"), warmup, replace(warmup, arm="a")).is_good


def test_a_record_names_no_directory() -> None:
    plan = scenario(workload={"kind": "trace", "path": "/home/me/trace.jsonl"})
    assert header_of(plan).config["scenario"]["workload"]["path"] == "trace.jsonl"


def test_a_record_tells_equal_prompts_of_two_runs() -> None:
    run = Run(Arm("a"), link=0, repetition=1, num_requests=None)

    def digest(prompt: tuple[int, ...] | str) -> str | None:
        answer = Answer(0, scheduled_s=0.0, sent_s=0.0)
        return recorded(answer, prompt, run, 0, 1, warmup=False).prompt_digest

    assert digest((1, 2)) == digest((1, 2)) is not None
    assert len({digest((1, 2)), digest((1, 3)), digest("1, 2")}) == 3


def test_a_workload_that_cannot_be_read_is_found_before_anything_is_up(tmp_path: Path) -> None:
    plan = scenario(workload={"kind": "trace", "path": str(tmp_path / "missing.jsonl")})
    record = tmp_path / "record.jsonl"
    with pytest.raises(ConfigError, match=r"missing\.jsonl"):
        run_serving(plan, Model(tmp_path, "tiny", range(9)), record, lambda task, fraction: None)
    assert not record.exists()


def test_a_record_tells_the_cluster_from_what_an_arm_changes() -> None:
    arms = [{"name": "small", "settings": {"engine.page_tokens": 8}}, {"name": "usual"}]
    header = header_of(scenario(arms=arms, cluster={"engine": {"max_sequences": 5}}))
    engine = header.config["cluster"]["engine"]
    assert (engine["threads"], engine["max_sequences"]) == (1, 5)  # the laboratory's, and its own
    assert engine["page_tokens"] != 8
    assert [arm.settings for arm in header.arms] == [{"engine.page_tokens": 8}, None]
