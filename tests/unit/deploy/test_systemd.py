"""deploy/systemd/pdspan@.service against the command line and the settings it stands on."""

import configparser
import shlex
from pathlib import Path

from pdcore.cluster import NodeRole
from pdcore.settings import QueueSettings
from pdspan.arguments import build_parser

UNIT = Path(__file__).parents[3] / "deploy/systemd/pdspan@.service"


def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser["Service"]


def test_command_is_one_that_pdspan_takes() -> None:
    command = service()["ExecStart"].replace("%i", "prefill-0").replace("$ROLE", "prefill")
    command = command.replace("$OPTIONS", "--set engine.threads=8")
    arguments = build_parser().parse_args(shlex.split(command)[1:])
    assert arguments.role is NodeRole.PREFILL
    assert arguments.node == "prefill-0"
    assert arguments.overrides == ["engine.threads=8"]


def test_a_node_outlasts_its_drain_before_it_is_killed() -> None:
    assert int(service()["TimeoutStopSec"]) > QueueSettings().drain_s


def test_a_wrong_configuration_is_not_started_again() -> None:
    assert service()["Restart"] == "on-failure"
    assert service()["RestartPreventExitStatus"] == "2"
