from dataclasses import asdict

import pytest

from kvtransfer.limits import MODES
from pdlab.knobs import ONE_KNOB, SEVERAL, attributable, knobs_between
from pdlab.records import ArmRecord


@pytest.mark.parametrize("pair", ONE_KNOB, ids=lambda pair: "-".join(sorted(pair)))
def test_the_modes_of_a_pair_differ_in_one_field_of_their_rows(pair: frozenset[str]) -> None:
    a, b = (asdict(MODES[mode]) for mode in pair)
    assert sum(a[field] != b[field] for field in a) == 1


def test_equal_arms_differ_in_nothing() -> None:
    a = ArmRecord("first", "auto", settings={"transfer.window_bytes": 1})
    b = ArmRecord("second", "auto", settings={"transfer.window_bytes": 1})
    assert knobs_between(a, b) == ()
    assert attributable(())


def test_a_setting_is_a_knob() -> None:
    a = ArmRecord("small", "windowed", settings={"transfer.window_bytes": 1})
    b = ArmRecord("large", "windowed", settings={"transfer.window_bytes": 2})
    assert knobs_between(a, b) == ("transfer.window_bytes",)
    assert attributable(("transfer.window_bytes",))


def test_a_mode_and_a_setting_are_two() -> None:
    a = ArmRecord("a", "sequential")
    b = ArmRecord("b", "windowed", settings={"transfer.window_bytes": 1})
    assert knobs_between(a, b) == ("window", "transfer.window_bytes")
    assert not attributable(knobs_between(a, b))


def test_auto_differs_from_every_mode_in_several() -> None:
    for mode in MODES.keys() - {"auto"}:
        assert knobs_between(ArmRecord("a", mode), ArmRecord("b", "auto")) == (SEVERAL,)
    assert not attributable((SEVERAL,))


def test_colocated_against_disaggregated_is_the_placement_alone() -> None:
    a = ArmRecord("alone", None, placement="colocated")
    assert knobs_between(a, ArmRecord("b", "auto")) == ("placement",)
