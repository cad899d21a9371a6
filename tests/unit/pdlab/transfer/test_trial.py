"""What cannot be measured is refused before anything starts; a grid is every combination."""

from dataclasses import replace
from typing import Any

import pytest

from pdcore.errors import ConfigError
from pdlab.link import LinkProfile
from pdlab.transfer.arms import expanded
from pdlab.transfer.trial import Trial, grid, pool_bytes

MIB = 2**20
TRIAL = Trial(LinkProfile(), 65536, MIB, ("auto",))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"page_bytes": 2 * MIB}, "a page of 2 MiB does not fit in a payload of 1 MiB"),
        ({"page_bytes": 17 * MIB, "payload_bytes": 64 * MIB}, "a message holds at most 16 MiB"),
        ({"page_bytes": 10}, "a page of 10 bytes"),
        ({"payload_bytes": 5 * 2**30}, "a payload of 5 GiB: a pool holds at most 4 GiB"),
        ({"repetitions": 0}, "0 repetitions: at least 1"),
        ({"limit_s": 0.0}, "a limit of 0 s"),
    ],
)
def test_impossible_numbers(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        replace(TRIAL, **fields)


def test_a_grid_is_every_combination_link_by_link() -> None:
    profiles = [LinkProfile(0.0), LinkProfile(0.01)]
    trials = list(grid(profiles, [4096, 8192], [MIB, 2 * MIB], TRIAL))
    found = [(t.profile.rtt_s, t.page_bytes, t.payload_bytes) for t in trials]
    assert found == sorted(found) and len(set(found)) == 8
    assert pool_bytes(trials) > 2 * MIB


def test_raw_tcp_is_two_arms_and_no_arm_is_measured_twice() -> None:
    assert expanded(["raw_tcp", "auto", "raw_tcp_1"]) == ("raw_tcp_1", "raw_tcp_4", "auto")


@pytest.mark.parametrize(
    ("names", "problem"), [(["autp"], "unknown arm 'autp'; known: .*auto"), ([], "no arms")]
)
def test_unknown_arms(names: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        expanded(names)
