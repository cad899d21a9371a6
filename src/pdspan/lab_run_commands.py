"""``pdspan lab run`` and ``pdspan lab serve``: run a scenario and leave its record.

``run`` takes a scenario of either level; ``serve`` only those that serve a model. Both say where
the record lies; of serving also whether every request was answered, and equally by all arms: the
exit status is 1 when not.
"""

import argparse
from argparse import Namespace
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pdcore.errors import ConfigError
from pdspan.subcommand import Commands, add_command, whole

if TYPE_CHECKING:
    from pdlab.bench import Model
    from pdlab.runner import Report
    from pdlab.scenario import ServingScenario, TransferScenario


def add_to(actions: Commands) -> None:
    parser = add_command(
        actions,
        "run",
        "Run a scenario file: an experiment with its arms, links and repetitions.",
        "pdspan lab run deploy/scenarios/rtt_sweep.toml --out results/",
    )
    _add_options(parser)
    parser.set_defaults(run=run)
    parser = add_command(
        actions,
        "serve",
        "Run a scenario that serves a model over a link: router and decode on one side.",
        "pdspan lab serve deploy/scenarios/serving_smollm2.toml --repetitions 5",
    )
    _add_options(parser)
    parser.set_defaults(run=serve)
    parser = add_command(
        actions,
        "serving-bars",
        "Measure what serving over a distance is held to, and judge it (about 10 minutes).",
        "pdspan lab serving-bars --out docs/results/serving",
    )
    parser.add_argument(
        "--scenarios",
        type=Path,
        default=Path("deploy/scenarios"),
        metavar="DIR",
        help="where the scenarios of the bars are (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="where records and bars.json go, over those of the last time",
    )
    _add_sizes(parser)
    parser.set_defaults(run=serving_bars)


def run(arguments: Namespace) -> int:
    from pdlab.scenario import ServingScenario, load_scenario

    scenario = load_scenario(arguments.scenario)
    if isinstance(scenario, ServingScenario):
        return _serve(scenario, arguments)
    return _transfer(scenario, arguments)


def serve(arguments: Namespace) -> int:
    from pdlab.scenario import ServingScenario, load_scenario

    scenario = load_scenario(arguments.scenario)
    if not isinstance(scenario, ServingScenario):
        raise ConfigError(
            f"{arguments.scenario} moves pages without a model: use 'pdspan lab run' for it"
        )
    return _serve(scenario, arguments)


def serving_bars(arguments: Namespace) -> int:
    """0 when every bar is met, else 1."""
    from pdlab.measured_bars import measure_bars
    from pdlab.transfer.results_page import update_page
    from pdspan.progress import open_progress

    with open_progress() as progress:
        results = measure_bars(
            arguments.scenarios,
            arguments.out,
            lambda scenario: _model(arguments.model or scenario.model, progress.report),
            progress.report,
            repetitions=arguments.repetitions,
        )
    update_page(arguments.out)
    for result in results:
        print(result)
    return 0 if all(result.passed for result in results) else 1


def _serve(scenario: "ServingScenario", arguments: Namespace) -> int:
    from pdlab.outcome import outcome_of
    from pdlab.record_files import read_serving
    from pdlab.runner import run_serving
    from pdlab.serving_table import serving_table
    from pdspan.progress import open_progress

    if arguments.repetitions is not None:
        scenario = replace(scenario, repetitions=arguments.repetitions)
    all_well = True
    with open_progress() as progress:
        model = _model(arguments.model or scenario.model, progress.report)
        for number, path in enumerate(_record_paths(scenario, arguments.out), start=1):
            run_serving(scenario, model, path, progress.report, number=number)
            record = read_serving(path)
            outcome = outcome_of(record)
            print(f"{path}: {outcome}\n{serving_table(record)}", flush=True)
            all_well = all_well and outcome.is_good
    return 0 if all_well else 1


def _transfer(scenario: "TransferScenario", arguments: Namespace) -> int:
    from pdspan.lab_transfer_command import run_options

    options = dict(scenario.options)
    if arguments.repetitions is not None:
        options["repetitions"] = str(arguments.repetitions)
    path = arguments.out / f"{_stem(scenario.name)}.json"
    status = run_options(scenario.name, options, path)
    print(path)
    return status


def _model(name: str, report: "Report") -> "Model":
    from pdlab.bench import Model
    from pdlab.workloads import vocabulary_of
    from pdspan.models import resolve_model

    directory = resolve_model(name, report)
    return Model(directory, Path(name).name, vocabulary_of(directory))


def _record_paths(scenario: "ServingScenario", directory: Path) -> list[Path]:
    stem = _stem(scenario.name)
    if scenario.runs == 1:
        return [directory / f"{stem}.jsonl"]
    return [directory / f"{stem}-{number:02}.jsonl" for number in range(1, scenario.runs + 1)]


def _stem(name: str) -> str:
    """A name that no earlier record has."""
    return f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}"


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", type=Path, metavar="FILE", help="the scenario (TOML)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="where records go (default: %(default)s)",
    )
    _add_sizes(parser)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repetitions", type=whole(1), metavar="N", help="instead of the scenario's"
    )
    parser.add_argument("--model", help="instead of the scenario's: a name or a directory")
