"""A scenario file (TOML) becomes frozen dataclasses, strictly: an error names the key.

Two levels. ``serving``: a workload, arms, links, repetitions and a seed, run on a real cluster.
``transfer``: the options of ``pdspan lab transfer`` as a table, run without a model. Everything
that can be wrong is found here, before a link is up or a process started.
"""

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from kvtransfer.limits import MODES
from pdcore.errors import ConfigError
from pdcore.settings import cluster_from_table
from pdcore.typed_table import Matching, OneKindOf, OneOf, Within, read_table
from pdlab.link import BUFFERS, LINKS, LinkProfile, TcpSettings
from pdlab.quantities import parse_bits_per_s, parse_bytes, parse_seconds, parse_share
from pdlab.workloads import ARRIVALS, WORKLOADS, Arrivals, Workload
from pdlab.workloads.arrivals import Burst

Count = Annotated[int, Within(1)]


@dataclass(frozen=True, slots=True)
class Spells:
    """Text that ``parse`` takes."""

    parse: Callable[[str], object]

    def problem(self, text: str) -> str | None:
        try:
            self.parse(text)
        except ConfigError as error:
            return str(error)
        return None


Seconds = Annotated[str, Spells(parse_seconds)]
BitRate = Annotated[str, Spells(parse_bits_per_s)]
Share = Annotated[str, Spells(parse_share)]


def parse_queue(text: str) -> int | None:
    return None if text == "auto" else parse_bytes(text)


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """One link, in the words of ``pdspan link up``."""

    kind: Annotated[str, OneOf(tuple(LINKS))] = "tun"
    rtt: Seconds = "0ms"
    rate: BitRate | None = None  # None: as fast as it goes
    loss: Share = "0%"
    jitter: Seconds = "0ms"
    queue: Annotated[str, Spells(parse_queue)] = "auto"
    buffers: Annotated[str, OneOf(tuple(BUFFERS))] = "large"
    congestion: str | None = None  # None: the kernel's default
    slow_start_after_idle: bool = True
    metrics_save: bool = False

    @property
    def profile(self) -> LinkProfile:
        return LinkProfile(
            rtt_s=parse_seconds(self.rtt),
            rate_bps=None if self.rate is None else parse_bits_per_s(self.rate),
            loss=parse_share(self.loss),
            jitter_s=parse_seconds(self.jitter),
            queue_bytes=parse_queue(self.queue),
        )

    @property
    def tcp(self) -> TcpSettings:
        return TcpSettings(
            self.buffers, self.congestion, self.slow_start_after_idle, self.metrics_save
        )

    def __str__(self) -> str:
        words = (self.kind, self.rtt, self.rate, self.congestion)
        return " ".join(word for word in words if word is not None)


@dataclass(frozen=True, slots=True)
class Arm:
    """What one side of the comparison asks for, and the cluster settings it runs with.

    An arm that takes long may take part in ``every`` so many blocks only.
    """

    name: str
    mode: Annotated[str, OneOf(tuple(MODES))] | None = None  # None: the cluster's
    placement: Annotated[str, OneOf(("disaggregated", "colocated"))] = "disaggregated"
    settings: Mapping[str, Any] = field(default_factory=dict)  # by dotted key, as ``--set`` takes
    num_requests: Count | None = None  # the workload's first so many; None: all
    every: Count = 1


# It becomes the name of record files.
FileName = Annotated[
    str,
    Matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
        "at most 100 letters, digits, dots, dashes and underscores, a letter or digit first",
    ),
]


@dataclass(frozen=True, slots=True)
class ServingScenario:
    """``run_serving`` runs it. One repetition is a block: every arm once, in random order.

    ``warmup`` runs of each arm come first; they are recorded and in no statistic. With ``prime``
    every prompt is sent once before each run, so that the prefill node has it cached. With
    ``at_once`` each arm runs once with each of these numbers of the workload's requests. A link has
    carried no request for at least ``idle_s`` when a run begins on it.
    With ``interleave_links`` all links are up at once and a block visits each of them; else one
    link after the other. ``runs`` repeats the whole, a record each.
    """

    name: FileName
    about: str
    workload: Annotated[Workload, OneKindOf(WORKLOADS)]
    arms: tuple[Arm, ...]
    links: tuple[LinkPlan, ...]
    arrivals: Annotated[Arrivals, OneKindOf(ARRIVALS)] | None = None  # None: as the workload says
    model: str = "smollm2-135m-instruct"
    cluster: Mapping[str, Any] = field(default_factory=dict)
    repetitions: Count = 5
    warmup: Annotated[int, Within(0)] = 1
    prime: bool = False
    at_once: tuple[Count, ...] = ()
    interleave_links: bool = False
    runs: Count = 1
    seed: int = 0
    timeout_s: Annotated[float, Within(0, above=True)] = 60.0  # of one request, to its last token
    idle_s: Annotated[float, Within(0)] = 0.0


@dataclass(frozen=True, slots=True)
class TransferScenario:
    """``options`` are those of ``pdspan lab transfer``, without dashes, as text."""

    name: FileName
    about: str
    options: Mapping[str, str]


Scenario = ServingScenario | TransferScenario


def load_scenario(path: Path) -> Scenario:
    """Raises ConfigError: which key of which file is wrong, and what would be right."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the scenario {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    level = table.pop("level", "serving")
    if level == "transfer":
        return _transfer_scenario(table, str(path))
    if level != "serving":
        raise ConfigError(f"{path}: level is {level!r}; one of serving, transfer")
    return serving_scenario(table, str(path), path.parent)


def _transfer_scenario(table: Mapping[str, Any], where: str) -> TransferScenario:
    scenario = read_table(TransferScenario, table, where)
    for key, value in scenario.options.items():
        if not isinstance(value, str):
            raise ConfigError(f'{where}: options: {key} is {value!r}; as text: {key} = "{value}"')
    return scenario


def serving_scenario(
    table: Mapping[str, Any], where: str, directory: Path = Path()
) -> ServingScenario:
    """``directory`` is what a workload's relative ``path`` is relative to."""
    table = dict(table)
    workload = table.get("workload")
    if isinstance(workload, Mapping) and isinstance(workload.get("path"), str):
        table["workload"] = {**workload, "path": str(directory / workload["path"])}
    scenario = read_table(ServingScenario, table, where)
    _check(scenario, where)
    return scenario


def overrides(settings: Mapping[str, Any]) -> list[str]:
    """``--set`` arguments for settings by dotted key. JSON's spelling of a value is TOML's."""
    return [f"{key}={_spelled(key, value)}" for key, value in settings.items()]


def _spelled(key: str, value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        raise ConfigError(
            f"{key}: no setting is of this kind: {type(value).__name__} ({value})"
        ) from None


def _check(scenario: ServingScenario, where: str) -> None:
    for what, entries in (("arms", scenario.arms), ("links", scenario.links)):
        if not entries:
            raise ConfigError(f"{where}: [[{what}]] is missing: at least one is needed")
    _check_names([arm.name for arm in scenario.arms], where)
    for i, link in enumerate(scenario.links):
        try:
            _ = link.profile, link.tcp
        except ConfigError as error:
            raise ConfigError(f"{where}: links[{i}]: {error}") from None
    if scenario.at_once and not isinstance(scenario.arrivals, Burst):
        raise ConfigError(f"{where}: at_once needs arrivals of kind 'burst', to come at once")
    for i, arm in enumerate(scenario.arms):
        cluster_from_table(
            scenario.cluster, _settings(arm, where, i), origin=f"{where}: cluster of arms[{i}]"
        )


def _settings(arm: Arm, where: str, place: int) -> list[str]:
    try:
        return overrides(arm.settings)
    except ConfigError as error:
        raise ConfigError(f"{where}: arms[{place}]: settings: {error}") from None


def _check_names(names: Sequence[str], where: str) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(f"{where}: two arms named {repeated[0]!r}; names must differ")
