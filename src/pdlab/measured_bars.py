"""Measures the serving level's bars: a scenario each, its record kept, the verdicts in one file.

``bars.json`` has the host, the commit and a ``BarResult`` per bar; each figure can be judged again
from the record of its scenario that lies beside it.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from pdcore.errors import ConfigError
from pdlab.bench import Model
from pdlab.host import HostRecord, describe_commit, describe_host
from pdlab.record_files import check_writable, disk_errors, read_serving, write_whole
from pdlab.runner import Report, run_serving
from pdlab.scenario import ServingScenario, load_scenario
from pdlab.serving_bars import BARS, BarResult

FILE_NAME = "bars.json"


@dataclass(frozen=True, slots=True)
class MeasuredBars:
    host: HostRecord
    commit: str
    bars: tuple[BarResult, ...]
    schema: int = 1


def measure_bars(
    scenarios: Path,
    out: Path,
    model_of: Callable[[ServingScenario], Model],
    report: Report,
    *,
    repetitions: int | None = None,
) -> tuple[BarResult, ...]:
    """Run every scenario of ``BARS`` from the directory ``scenarios``, and write into ``out``, over
    what an earlier measurement left there, when all are complete.
    ``repetitions``: instead of the scenarios' own. Raises PdspanError."""
    host, commit = describe_host(), describe_commit()
    plans = {name: _serving(scenarios / f"{name}.toml") for name in BARS}
    models = {name: model_of(scenario) for name, scenario in plans.items()}
    check_writable(out / FILE_NAME)
    results: list[BarResult] = []
    drafts: dict[Path, Path] = {}
    for name, judge in BARS.items():
        scenario = plans[name]
        if repetitions is not None:
            scenario = replace(scenario, repetitions=repetitions)
        path, draft = out / f"{name}.jsonl", out / f"{name}.running.jsonl"
        with disk_errors(draft):
            draft.unlink(missing_ok=True)  # of a run that was killed
        logs = Path(mkdtemp(prefix="pdspan-lab-"))
        run_serving(scenario, models[name], draft, report, logs=logs)
        rmtree(logs)  # of a run that fails they stay, since its error names them
        results += judge(read_serving(draft))
        drafts[draft] = path
    with disk_errors(out):
        (out / FILE_NAME).unlink(missing_ok=True)  # it judges what is now replaced
        for draft, path in drafts.items():
            draft.replace(path)
    bars = MeasuredBars(host, commit, tuple(results))
    write_whole(out / FILE_NAME, json.dumps(asdict(bars), indent=1).encode() + b"\n")
    return bars.bars


def _serving(path: Path) -> ServingScenario:
    scenario = load_scenario(path)
    if not isinstance(scenario, ServingScenario):
        raise ConfigError(f"{path}: a bar of serving needs level = 'serving'")
    return scenario
