"""When a warm-up is worth its bytes."""

import pytest

from kvtransfer.warmth import (
    COLD_AFTER_S,
    LEAST_REOPEN_S,
    LEAST_RTT_S,
    LEAST_TRANSFER_BYTES,
    Warmth,
)

CAP = 64 * 2**20
FAR_S = 0.05


def test_new_connections_are_worth_the_whole_cap() -> None:
    assert Warmth(CAP).budget_bytes(FAR_S, None, now=0.0) == CAP


@pytest.mark.parametrize(
    ("expected_bytes", "budget"),
    [(10 * CAP, CAP), (CAP // 4, CAP // 4), (LEAST_TRANSFER_BYTES - 1, 0)],
)
def test_a_warm_up_is_never_larger_than_its_transfer(expected_bytes: int, budget: int) -> None:
    assert Warmth(CAP).budget_bytes(FAR_S, expected_bytes, now=0.0) == budget


@pytest.mark.parametrize("rtt_s", [None, LEAST_RTT_S / 2])
def test_an_unknown_or_short_path_is_not_warmed(rtt_s: float | None) -> None:
    assert Warmth(CAP).budget_bytes(rtt_s, CAP, now=0.0) == 0


def test_connections_are_cold_again_after_a_while() -> None:
    warmth = Warmth(CAP)
    warmth.moved(10.0)
    assert warmth.budget_bytes(FAR_S, CAP, now=10.0 + COLD_AFTER_S) == 0
    assert warmth.budget_bytes(FAR_S, CAP, now=10.1 + COLD_AFTER_S) == CAP


def test_reopened_connections_are_cold_but_not_each_time_a_link_breaks() -> None:
    warmth = Warmth(CAP)
    warmth.reopened(0.0)
    warmth.moved(0.5)
    warmth.reopened(1.0)
    assert warmth.budget_bytes(FAR_S, None, now=1.0) == 0
    warmth.reopened(LEAST_REOPEN_S / 2)  # and idle ever since
    assert warmth.budget_bytes(FAR_S, None, now=LEAST_REOPEN_S / 2) == 0
    assert warmth.budget_bytes(FAR_S, CAP, now=LEAST_REOPEN_S / 2) == CAP  # pages are to come
    warmth.moved(LEAST_REOPEN_S)
    warmth.reopened(LEAST_REOPEN_S)
    assert warmth.budget_bytes(FAR_S, None, now=LEAST_REOPEN_S) == CAP


def test_warm_ups_can_be_turned_off() -> None:
    assert Warmth(0).budget_bytes(FAR_S, None, now=0.0) == 0
    assert Warmth(0).budget_bytes(FAR_S, CAP, now=0.0) == 0
