"""The serving level's bars are judged from records: what is compared with what, and what counts."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

import sample_records
from pdcore.errors import ConfigError
from pdlab.records import LinkRecord, RequestRecord, ServingRecord
from pdlab.serving_bars import decode_under_transfers, exposed_by_distance, first_after_idle

LINK = replace(sample_records.LINK, rtt_s=0.0)
REQUEST = replace(sample_records.REQUEST, repetition=1, ttft_s=1.0, e2e_s=2.0, itl_s=())


def record(links: Iterable[LinkRecord], requests: Iterable[RequestRecord]) -> ServingRecord:
    return ServingRecord(
        sample_records.serving_header(), tuple(links), tuple(requests), complete=True
    )


def distance(arm: str, block: int, near_s: float, far_s: float) -> list[RequestRecord]:
    return [
        replace(REQUEST, arm=arm, repetition=block, link=0, exposed_s=near_s),
        replace(REQUEST, arm=arm, repetition=block, link=1, exposed_s=far_s),
    ]


def test_exposed_time_is_compared_block_by_block_in_round_trips() -> None:
    requests = [
        *distance("auto", 1, 0.10, 0.15),
        *distance("auto", 2, 0.30, 0.36),  # a slow block is slow at both ends of the pair
        *distance("auto", 3, 0.10, 0.17),
        *distance("sequential", 3, 0.5, 6.5),
        replace(REQUEST, repetition=0, link=1, exposed_s=9.0, warmup=True),
        replace(REQUEST, repetition=4, link=1, status="transfer_error", exposed_s=9.0),
        replace(REQUEST, repetition=4, link=0, exposed_s=0.1),  # without its partner
    ]
    (bar,) = exposed_by_distance(record([LINK, replace(LINK, rtt_s=0.05)], requests))
    assert bar.values == pytest.approx((1.0, 1.2, 1.4))
    assert bar.value == pytest.approx(1.2)
    assert bar.passed
    assert "1.20 RTT (1.00 to 1.40, of 3 blocks), at most 1.3: met" in str(bar)
    assert "sequential, exposed time: 500.0 ms and 6500.0 ms" in str(bar)
    slow = [replace(r, exposed_s=(r.exposed_s or 0) + 0.02 * r.link) for r in requests]
    (bar,) = exposed_by_distance(record([LINK, replace(LINK, rtt_s=0.05)], slow))
    assert bar.value == pytest.approx(1.6)
    assert not bar.passed
    assert "NOT met" in str(bar)


def test_without_a_whole_pair_there_is_no_verdict() -> None:
    requests = [replace(REQUEST, link=0, exposed_s=0.1)]
    with pytest.raises(ConfigError, match="no block with both"):
        exposed_by_distance(record([LINK, replace(LINK, rtt_s=0.05)], requests))


def timeline(to_commit_s: float) -> dict[str, object]:
    """The last page is ready at 1 s, committed ``to_commit_s`` later; nothing else takes time."""

    def part(name: str, end_s: float) -> dict[str, object]:
        span = {"name": name, "start_s": 0.0, "duration_s": end_s}
        return {"clock_s": 0.0, "spans": [span]}

    prefill = part("prefill", 1.0)
    prefill["spans"] += part("queue", 0.5)["spans"]  # type: ignore[operator]
    return {
        "router": part("prepare", 0.5),
        "prefill": prefill,
        "decode": part("receive", 1.0 + to_commit_s),
        "transfer": {"page_bytes": 10_000_000},
    }


def test_the_first_request_after_idle_is_compared_with_the_tenth_on_each_link() -> None:
    def run(link: int, block: int, times_s: list[float]) -> list[RequestRecord]:
        return [
            replace(REQUEST, link=link, repetition=block, index=i, timeline=timeline(time_s))
            for i, time_s in enumerate(times_s)
        ]

    requests = [
        *run(0, 1, [0.044, 0.9, 0.040]),
        *run(0, 2, [0.050, 0.9, 0.040]),
        *run(0, 3, [0.042, 0.9, 0.040]),
        *run(1, 1, [0.400, 0.9, 0.040]),
    ]
    links = [replace(LINK, congestion="cubic"), replace(LINK, congestion="bbr")]
    cubic, bbr = first_after_idle(record(links, requests))
    assert (cubic.name, bbr.name) == ("first_after_idle_cubic", "first_after_idle_bbr")
    assert cubic.value == pytest.approx(1.1)
    assert cubic.passed
    assert bbr.value == pytest.approx(10)
    assert not bbr.passed


def test_only_tokens_that_came_under_a_transfer_count() -> None:
    """Transfers end at 0.5 s; tokens of the watched request come at 0.1 s and every 0.1 s, then
    every 0.01 s: those after 0.5 s say nothing about transfers."""
    quiet = replace(REQUEST, arm="quiet", ttft_s=0.1, itl_s=(0.08,) * 9, e2e_s=0.82)
    watched = replace(
        REQUEST, arm="inbound", ttft_s=0.1, itl_s=(0.1,) * 4 + (0.01,) * 50, e2e_s=1.0
    )
    shipped = [
        replace(REQUEST, arm="inbound", index=i, e2e_s=0.25 * i, timeline=timeline(0.1))
        for i in (1, 2)
    ]
    (bar,) = decode_under_transfers(record([LINK], [quiet, watched, *shipped]))
    assert bar.value == pytest.approx(1.25)
    assert not bar.passed
    # 2 transfers of 10 MB within 0.5 s.
    assert "0.32 Gbit/s of pages arrived meanwhile on a line of 1 Gbit/s" in str(bar)
    failed = replace(REQUEST, arm="inbound", index=3, status="transfer_error", e2e_s=0.1)
    (bar,) = decode_under_transfers(record([LINK], [quiet, watched, *shipped, failed]))
    assert "0.32 Gbit/s" in str(bar)  # what failed brought nothing
