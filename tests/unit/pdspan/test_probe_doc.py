"""docs/probe.md names the options that ``pdspan probe`` has, and the numbers that decide."""

import argparse
import re
from pathlib import Path

from kvtransfer import path_advice
from kvtransfer.limits import MODES
from pdspan import probe_job
from pdspan.arguments import build_parser

DOC = (Path(__file__).parents[3] / "docs/probe.md").read_text()


def options() -> set[str]:
    (commands,) = (
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    probe: argparse.ArgumentParser = commands.choices["probe"]
    return {name for action in probe._actions for name in action.option_strings} - {"-h", "--help"}


def test_every_option_has_a_row_and_every_row_an_option() -> None:
    table = DOC.partition("## Options")[2]
    assert set(re.findall(r"`(--[a-z-]+)", table)) == options()


def test_every_mode_is_in_the_example() -> None:
    example = DOC.partition("```\n")[2]
    rows = re.findall(r"^  (\w+) .*_bound$", example, re.MULTILINE)
    assert rows == [*MODES]


def test_the_numbers_that_decide_are_those_of_the_code() -> None:
    table = DOC.partition("| what | when it is listed |")[2].partition("\n\n")[0]
    for number in (path_advice.SEND_SHARE, path_advice.CLOSE, path_advice.FILLS):
        assert f"{number:g}" in table
    assert f"{100 * path_advice.LOSS_THAT_HURTS:g} %" in table
    assert f"{1000 * path_advice.LONG_RTT_S:g} ms" in table
    assert path_advice.RECEIVE_SHARE == 0.5, "half of the receive buffer"
    assert f"once they have computed {probe_job.MIN_COUNTED_TOKENS} of them" in DOC
