"""Scenario files: read strictly, and an error says which key of which file is wrong."""

from pathlib import Path

import pytest

from pdcore.errors import ConfigError
from pdlab.scenario import (
    ServingScenario,
    TransferScenario,
    load_scenario,
    overrides,
)
from pdlab.workloads.arrivals import Poisson
from pdlab.workloads.lengths import Fixed
from pdlab.workloads.trace import Trace

SCENARIOS = Path(__file__).parents[3] / "deploy/scenarios"

SERVING = """
name = "two_arms"
about = "For a test."

[workload]
kind = "fixed"
prompt_tokens = 256
output_tokens = 4

[arrivals]
kind = "poisson"
per_s = 2

[[links]]
rtt = "50ms"
rate = "1gbit"
loss = "0.1%"
congestion = "cubic"

[[arms]]
name = "auto"
mode = "auto"

[[arms]]
name = "small window"
mode = "windowed"
settings = {"transfer.window_bytes" = 65536}
"""


def load(tmp_path: Path, text: str, *edits: tuple[str, str]):
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return load_scenario(path)


def test_a_serving_scenario_is_read(tmp_path: Path) -> None:
    scenario = load(tmp_path, SERVING)
    assert isinstance(scenario, ServingScenario)
    assert scenario.workload == Fixed(prompt_tokens=256, output_tokens=4)
    assert scenario.arrivals == Poisson(per_s=2.0)
    (link,) = scenario.links
    assert (link.profile.rtt_s, link.profile.rate_bps) == (0.05, 1e9)
    assert link.profile.loss == pytest.approx(0.001)
    assert link.tcp.congestion == "cubic"
    assert overrides(scenario.arms[1].settings) == ["transfer.window_bytes=65536"]


def test_a_files_path_is_relative_to_the_scenario(tmp_path: Path) -> None:
    trace = 'kind = "trace"\npath = "traces/a.jsonl"\n'
    fixed = 'kind = "fixed"\nprompt_tokens = 256\noutput_tokens = 4\n'
    scenario = load(tmp_path, SERVING, (fixed, trace))
    assert scenario.workload == Trace(str(tmp_path / "traces/a.jsonl"))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("about =", "abuot =", r"scenario.toml: unknown key 'abuot'; did you mean 'about'"),
        ('name = "two_arms"\n', "", "scenario.toml: key 'name' is missing"),
        ("prompt_tokens", "promt_tokens", "workload: unknown key 'promt_tokens'; did you mean"),
        ("prompt_tokens = 256", "prompt_tokens = 0", "workload: prompt_tokens is 0; it must be at"),
        ('"fixed"', '"fixd"', "workload: kind is 'fixd'; one of fixed, uniform, bimodal, zipf"),
        ('"poisson"', '"posson"', "arrivals: kind is 'posson'; one of one_at_a_time, burst"),
        ("per_s = 2", "", "arrivals: key 'per_s' is missing"),
        ('rtt = "50ms"', 'rtt = "50mz"', r"links\[0\]: rtt is '50mz'; .*unit 'mz'.* such as 50ms"),
        ('rtt = "50ms"', "rtt = 50", r"links\[0\]: rtt: expected a string"),
        ('rate = "1gbit"', 'rate = "1"', r"links\[0\]: rate is '1'; .*has no unit"),
        ('rtt = "50ms"', 'rtt = "50s"', r"links\[0\]: link: rtt 50 s: it must be"),
        ('rtt = "50ms"', 'kind = "tin"', r"links\[0\]: kind is 'tin'; one of tun"),
        ('mode = "auto"', 'mode = "atuo"', r"arms\[0\]: mode is 'atuo'; one of .*sequential"),
        ('mode = "auto"', 'modus = "auto"', r"arms\[0\]: unknown key 'modus'"),
        ('"small window"', '"auto"', "two arms named 'auto'; names must differ"),
        ("transfer.window_bytes", "transfer.windw", r"cluster of arms\[1\]: .*unknown key 'windw'"),
        ("[[links]]", "[[link]]", "unknown key 'link'; did you mean 'links'"),
        ("[workload]", "level = 5\n[workload]", "level is 5; one of serving, transfer"),
        ("[workload]", "at_once = [1, 8]\n[workload]", "at_once needs arrivals of kind 'burst'"),
        ("name =", "name", "not valid TOML"),
        (
            "prompt_tokens = 256",
            f"prompt_tokens = {'9' * 5000}",
            "not valid TOML: Exceeds the limit",
        ),
        ("[workload]", f"x = {'[' * 3000}\n[workload]", "not valid TOML: .*recursion"),
        ('name = "two_arms"', 'name = "../two"', "name is '../two'; it must be .*letters, digits"),
        ('name = "two_arms"', 'name = "a\\u0000b"', "name is .*; it must be"),
        ('name = "two_arms"', f'name = "{"x" * 300}"', "name is .*; it must be at most 100"),
        ("65536", "1979-05-27", r"transfer.window_bytes: no setting is of this kind: date"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        load(tmp_path, SERVING, (old, new))
    assert str(error.value).startswith(str(tmp_path / "scenario.toml"))
    assert "\n" not in str(error.value)


def test_settings_of_the_cluster_are_checked(tmp_path: Path) -> None:
    cluster = "[cluster.engine]\ndtpye = 'float32'\n[workload]"
    with pytest.raises(ConfigError, match="unknown key 'dtpye'; did you mean 'dtype'"):
        load(tmp_path, SERVING, ("[workload]", cluster))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the scenario .*none.toml: No such file"):
        load_scenario(tmp_path / "none.toml")


TRANSFER = """
level = "transfer"
name = "rtts"
about = "For a test."

[options]
rtt = "0,50ms"
arms = "sequential,auto"
"""


def test_a_transfer_scenario_is_read(tmp_path: Path) -> None:
    scenario = load(tmp_path, TRANSFER)
    assert isinstance(scenario, TransferScenario)
    assert scenario.options == {"rtt": "0,50ms", "arms": "sequential,auto"}


def test_options_of_a_transfer_are_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'options: rtt is 5; as text: rtt = "5"'):
        load(tmp_path, TRANSFER, ('"0,50ms"', "5"))


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_scenarios_are_right(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    assert isinstance(scenario, ServingScenario | TransferScenario)
    if isinstance(scenario, ServingScenario):
        assert scenario.workload.requests(range(256, 1000), "0")
