"""docs/experiments.md says what the code takes: its example loads, its tables have every key."""

import re
from dataclasses import fields
from pathlib import Path

from pdlab.scenario import ServingScenario, load_scenario
from pdlab.workloads import ARRIVALS, WORKLOADS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/experiments.md").read_text()


def rows(heading: str) -> list[str]:
    """The first cells of the table under a heading."""
    section = PAGE.partition(f"{heading}\n")[2].split("\n#")[0]
    cells = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| `")]
    assert cells, heading
    return cells


def test_the_example_is_a_scenario(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert example
    path = tmp_path / "example.toml"
    path.write_text(example[1])
    scenario = load_scenario(path)
    assert isinstance(scenario, ServingScenario)
    assert scenario.repetitions == 20


def test_every_key_of_a_scenario_is_told() -> None:
    told = " ".join([*rows("## A scenario"), re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]])
    for field in fields(ServingScenario):
        assert field.name in told, field.name


def test_every_workload_and_arrival_is_told() -> None:
    assert {cell.strip("`") for cell in rows("### Workloads")} == {*WORKLOADS}
    assert all(f"`{kind}`" in PAGE for kind in ARRIVALS)


def test_every_shipped_scenario_is_told() -> None:
    shipped = sorted(path.stem for path in (ROOT / "deploy/scenarios").glob("*.toml"))
    assert sorted(cell.strip("`") for cell in rows("## The shipped scenarios")) == shipped
