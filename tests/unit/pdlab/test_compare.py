from dataclasses import replace

import numpy as np
import pytest

from pdcore.errors import ConfigError
from pdlab.compare import Calibration, calibrate, compare_arms, compare_records
from pdlab.compare_text import comparison_object, comparison_text
from pdlab.records import ArmRecord, RequestRecord, ServingRecord
from sample_records import CELL, HOST, LINK, request, serving_header, transfer_record


def serving(*requests: RequestRecord, links=(LINK,), **header: object) -> ServingRecord:
    names = dict.fromkeys(request.arm for request in requests)
    arms = tuple(ArmRecord(name, name) for name in names)
    return ServingRecord(replace(serving_header(), arms=arms, **header), links, requests, True)


def arm(name: str, ttfts_s, **fields: object) -> list[RequestRecord]:
    return [request(name, block, ttft_s, **fields) for block, ttft_s in enumerate(ttfts_s)]


def cell(arm_name: str, *goodput_bps: float, **fields: object):
    median_bps = sorted(goodput_bps)[len(goodput_bps) // 2]
    return replace(
        CELL,
        arm=arm_name,
        goodput_bps=goodput_bps,
        median_goodput_bps=median_bps,
        **fields,
    )


SLOW = [1.00, 1.02, 1.10, 1.05, 1.30, 1.01, 1.07, 1.04]
FAST = [0.50, 0.52, 0.55, 0.50, 0.70, 0.51, 0.53, 0.52]


def test_the_effect_of_one_arm_over_another() -> None:
    comparison = compare_arms(serving(*arm("windowed", SLOW), *arm("coalesced", FAST)))
    (row,) = comparison.rows
    assert row.effect.median_a == pytest.approx(1.045)
    assert row.effect.ratio == pytest.approx(0.52 / 1.045)
    assert row.effect.paired
    assert comparison.found
    assert not comparison.mismatches
    assert not comparison.doubts


def test_transfers_are_compared_cell_by_cell() -> None:
    far = replace(LINK, rtt_s=0.1, rtt_min_s=0.1)
    record = transfer_record(
        cell("windowed", 1e8, 1.1e8, 0.9e8),
        cell("coalesced", 8e8, 8e8, 9e8),
        cell("windowed", 0.5e8, 0.5e8, 0.5e8, link=1, rtt_s=0.1),
        cell("coalesced", 8e8, 8e8, 8e8, link=1, rtt_s=0.1),
        link=(LINK, far),
    )
    rows = compare_arms(record).rows
    assert [(row.condition.rtt_s, row.effect.ratio) for row in rows] == [
        (0.05, pytest.approx(8)),
        (0.1, pytest.approx(16)),
    ]


def test_few_repetitions_of_many_cells_find_together_what_no_cell_finds_alone() -> None:
    links = tuple(replace(LINK, rtt_s=rtt_s, rtt_min_s=rtt_s) for rtt_s in (0.01, 0.05, 0.1))
    cells = [
        cell(name, *(goodput * k for k in (1.0, 1.01, 1.02)), link=place)
        for place in range(3)
        for name, goodput in (("windowed", 1e8), ("coalesced", 9e8))
    ]
    comparison = compare_arms(transfer_record(*cells, link=links))
    assert not any(row.found for row in comparison.rows)
    assert comparison.overall.found
    assert comparison.overall.ratio == pytest.approx(9)
    assert comparison.found
    assert "all 3 together (geometric mean)" in comparison_text(comparison)
    assert "no single row of so few can be found different, only all rows together (9 pairs)" in (
        comparison_text(comparison)
    )


def test_rows_that_are_few_even_together_are_not_said_to_find_anything() -> None:
    far = replace(LINK, rtt_s=0.1, rtt_min_s=0.1)
    cells = [cell(name, 1e8, 2e8, link=i) for i in (0, 1) for name in ("windowed", "coalesced")]
    doubts = compare_arms(transfer_record(*cells, link=(LINK, far))).doubts
    assert any(doubt.endswith("no single row of so few can be found different") for doubt in doubts)


def test_of_a_yardstick_with_several_connections_the_better_one_counts() -> None:
    record = transfer_record(
        cell("raw_tcp", 5e8, 5e8, 5e8, stripes=1, verified=False),
        cell("raw_tcp", 9e8, 9e8, 9e8, stripes=4, verified=False),
        cell("auto", 9e8, 9e8, 9e8),
    )
    comparison = compare_arms(record)
    assert comparison.rows[0].effect.ratio == 1.0
    assert any("raw_tcp checks no bytes" in doubt for doubt in comparison.doubts)
    assert not comparison.mismatches


def test_blocks_are_what_is_paired_and_not_requests() -> None:
    many = [
        *(request("a", block, ttft, index=i) for block in range(8) for i, ttft in enumerate(SLOW)),
        *(request("b", block, ttft, index=i) for block in range(8) for i, ttft in enumerate(FAST)),
    ]
    assert compare_arms(serving(*many)).rows[0].effect.num_a == 8


def test_arms_that_generate_other_tokens_are_not_identical() -> None:
    other = replace(request("b", 1, 1.0), token_ids=(1, 2, 4))
    comparison = compare_arms(serving(*arm("a", [1.0, 1.0]), request("b", 0, 1.0), other))
    (mismatch,) = comparison.mismatches
    assert mismatch.startswith("a and b at 50 ms RTT, 1 Gbit/s")
    assert mismatch.endswith("results differ in 1 of 2 (repetition 1 request 0)")


def test_arms_that_moved_other_bytes_or_did_not_verify_them_are_not_identical() -> None:
    record = transfer_record(
        cell("windowed", 1e8, 1e8), cell("coalesced", 1e8, 1e8, digest="d2", verified=False)
    )
    mismatches = compare_arms(record).mismatches
    assert any("results differ in 1 of 1 (payload)" in mismatch for mismatch in mismatches)
    assert any(m.startswith("coalesced at") and "not verified" in m for m in mismatches)


def test_an_arm_that_was_cut_short_moved_other_bytes_and_that_is_right() -> None:
    record = transfer_record(
        cell("sequential", 1e7, 1e7, digest="of less", moved_bytes=(2**20, 2**20)),
        cell("windowed", 1e8, 1e8),
    )
    assert not compare_arms(record).mismatches


def test_failed_and_warm_up_requests_are_left_out_and_failures_said() -> None:
    failed = replace(request("b", 0, None), status="TransferFailed", token_ids=())
    warm_up = replace(request("b", 1, 99.0), warmup=True)
    comparison = compare_arms(
        serving(*arm("a", [1.0, 1.0, 1.0]), failed, warm_up, request("b", 2, 1.0))
    )
    assert comparison.rows[0].effect.num_b == 1
    assert not comparison.mismatches
    assert any("failed requests are left out: 1 of b at" in doubt for doubt in comparison.doubts)


def test_void_cells_prove_nothing() -> None:
    record = transfer_record(
        cell("windowed", 1e8, 1e8), cell("coalesced", 9e8, 9e8, void="raw_tcp too slow")
    )
    comparison = compare_arms(record)
    assert not comparison.rows
    assert any("raw_tcp too slow" in doubt for doubt in comparison.doubts)


@pytest.mark.parametrize(
    ("arms", "warned"),
    [
        (("sequential", "bulk"), False),
        (("windowed", "sequential"), False),
        (("sequential", "coalesced"), True),
        (("pipelined", "auto"), True),
    ],
)
def test_modes_that_differ_in_several_knobs_are_warned_of(arms, warned: bool) -> None:
    comparison = compare_arms(serving(*arm(arms[0], SLOW), *arm(arms[1], SLOW)))
    assert any("of all of them together" in doubt for doubt in comparison.doubts) == warned


def test_what_speaks_against_a_comparison_is_said() -> None:
    slower = replace(LINK, rtt_min_s=0.08)
    requests = [*arm("a", SLOW[:5]), *arm("b", SLOW[:5], link=1)]
    record = replace(serving(*requests, links=(LINK, slower), commit="0abc-dirty"), complete=False)
    doubts = "\n".join(compare_arms(record).doubts)
    assert "0abc-dirty" in doubts
    assert "ended early, after 10 requests" in doubts
    assert "not alike as measured: 50 ms RTT" in doubts
    assert "fewer than 6 blocks" in doubts


def test_two_runs_are_not_paired_and_that_is_said() -> None:
    other_host = replace(HOST, cpu="Another CPU")
    a = serving(*arm("auto", SLOW), *arm("bulk", SLOW))
    b = serving(*arm("auto", FAST), *arm("bulk", SLOW), host=other_host)
    comparison = compare_records(a, b)
    assert [(row.arm_a, row.found) for row in comparison.rows] == [("auto", True), ("bulk", False)]
    assert not comparison.rows[0].effect.paired
    assert any("not interleaved" in doubt for doubt in comparison.doubts)
    assert any("Another CPU" in doubt for doubt in comparison.doubts)


def test_tokens_of_two_runs_are_compared_where_prompts_are_equal() -> None:
    a = serving(*arm("auto", SLOW, prompt_digest="p1"))
    b = serving(*arm("auto", SLOW, prompt_digest="p1", token_ids=(9, 9)))
    assert "results differ in 8 of 8" in compare_records(a, b).mismatches[0]
    other = serving(*arm("auto", SLOW, prompt_digest="p2", token_ids=(9, 9)))
    assert not compare_records(a, other).mismatches


def test_tokens_of_two_runs_whose_prompts_are_not_known_are_not_compared() -> None:
    a = serving(*arm("auto", SLOW))
    b = serving(*arm("auto", SLOW, token_ids=(9, 9)))
    comparison = compare_records(a, b)
    assert not comparison.mismatches
    assert any("prompts of the two runs may differ" in doubt for doubt in comparison.doubts)


@pytest.mark.parametrize(
    ("arms", "metric", "problem"),
    [
        (None, None, "the arms are a, b, c: choose two"),
        (("a", "z"), None, "no arm 'z' in the record; it has a, b, c"),
        (("a", "a"), None, "arm 'a' with itself"),
        (("a", "b"), "speed", "--metric is 'speed'; for this kind of record ttft_s"),
    ],
)
def test_what_cannot_be_compared_is_one_line(arms, metric, problem: str) -> None:
    record = serving(*arm("a", SLOW), *arm("b", SLOW), *arm("c", SLOW))
    with pytest.raises(ConfigError, match=problem):
        compare_arms(record, arms, metric)


def test_a_run_that_ended_before_its_first_request_has_no_arms() -> None:
    with pytest.raises(ConfigError, match="nothing was measured"):
        compare_arms(serving())
    with pytest.raises(ConfigError, match="nothing was measured"):
        compare_records(serving(*arm("a", SLOW)), serving())


def test_records_of_two_kinds_or_without_a_common_arm() -> None:
    with pytest.raises(ConfigError, match="nothing to compare"):
        compare_records(transfer_record(), serving(*arm("a", SLOW)))
    with pytest.raises(ConfigError, match="share no arm"):
        compare_records(serving(*arm("a", SLOW)), serving(*arm("b", SLOW)))


def test_arms_that_never_met() -> None:
    far = replace(LINK, rtt_s=0.2)
    record = serving(*arm("a", SLOW), *arm("b", SLOW, link=1), links=(LINK, far))
    with pytest.raises(ConfigError, match="never measured under the same condition"):
        compare_arms(record)


def aa_run(rng: np.random.Generator, effect: float = 1.0) -> ServingRecord:
    drift = 1 + np.abs(np.cumsum(rng.normal(0, 0.05, 20)))
    a, b = drift * rng.lognormal(0, 0.05, (2, 20))
    return serving(*arm("auto_1", a.tolist()), *arm("auto_2", (effect * b).tolist()))


def test_equal_arms_are_rarely_flagged() -> None:
    rng = np.random.default_rng(11)
    calibration = calibrate(aa_run(rng) for _ in range(20))
    assert calibration.num_runs == 20
    assert calibration.passed


def test_a_laboratory_that_favours_one_arm_is_caught() -> None:
    rng = np.random.default_rng(11)
    calibration = calibrate(aa_run(rng, effect=1.2) for _ in range(20))
    assert not calibration.passed


def test_few_runs_calibrate_nothing() -> None:
    assert not Calibration(num_runs=10, num_found=0).passed
    assert Calibration(num_runs=20, num_found=2).passed
    assert not Calibration(num_runs=20, num_found=3).passed
    assert Calibration(num_runs=40, num_found=4).passed


def test_the_text_has_a_row_a_condition_and_every_doubt() -> None:
    record = transfer_record(
        cell("sequential", 5e7, 6e7, 5.5e7), cell("auto", 9e8, 9.1e8, 9.2e8, digest="d2")
    )
    comparison = compare_arms(record)
    text = comparison_text(comparison)
    assert "goodput: higher is better" in text
    assert "55 Mbit/s (n=3)" in text
    assert "910 Mbit/s (n=3)" in text
    assert "16.5" in text
    assert "NOT IDENTICAL: sequential and auto" in text
    assert "warning: sequential and auto differ in several knobs" in text
    table = comparison_object(comparison)
    assert table["identical"] is False
    assert table["rows"][0]["effect"]["ratio"] == pytest.approx(910 / 55)
