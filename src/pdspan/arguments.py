"""What can be said on the command line, with help and an example for each command.

Only words are checked here: which commands and options exist, and that numbers are numbers. What
they mean is up to ``pdspan.main``; ``arguments.command`` says which command was given.
"""

import argparse
from pathlib import Path

from pdcore.cluster import NodeRole
from pdcore.settings import ModelSettings
from pdcore.version import __version__
from pdspan import lab_arguments, link_commands, probe_command
from pdspan.subcommand import Commands, add_command, whole

DEFAULT_MODEL = ModelSettings().path


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pdspan",
        description="Serve an LLM with prefill and decode on different machines.",
        epilog="example:\n  pdspan up --port 8000",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pdspan {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_up(commands)
    for role in NodeRole:
        _add_node(commands, role)
    _add_models(commands)
    _add_config(commands)
    probe_command.add_to(commands)
    lab_arguments.add_to(commands)
    link_commands.add_to(commands)
    return parser


def _add_up(commands: Commands) -> None:
    parser = add_command(
        commands,
        "up",
        "Serve on this machine: a router, prefill and decode nodes as processes on loopback.",
        "pdspan up --model smollm2-135m-instruct --prefill 1 --decode 2 --transfer pipelined",
    )
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help="a name from 'pdspan models list', a directory, or a hub id (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=whole(0, 65535),
        default=8000,
        help="HTTP port, 0 for a free one (default: 8000)",
    )
    prefill = parser.add_mutually_exclusive_group()
    prefill.add_argument(
        "--prefill", type=whole(0), default="1", metavar="N", help="prefill nodes (default: 1)"
    )
    prefill.add_argument(
        "--colocated",
        action="store_const",
        dest="prefill",
        const=0,
        help="no prefill node: decode nodes prefill themselves",
    )
    parser.add_argument(
        "--decode", type=whole(1), default=1, metavar="N", help="decode nodes (default: 1)"
    )
    parser.add_argument(
        "--transfer", metavar="MODE", help="how KV pages travel, e.g. pipelined (default: auto)"
    )
    parser.add_argument(
        "--dtype", help="bfloat16, float32 or float16 (default: what this device is fast at)"
    )
    parser.add_argument("--weights", help="int8: keep them in 8 bits, on a CPU (default: full)")
    _add_set(parser)
    parser.add_argument(
        "--json", action="store_true", help="when ready, print one line of JSON instead of text"
    )
    parser.set_defaults(command="up")


def _add_node(commands: Commands, role: NodeRole) -> None:
    parser = add_command(
        commands,
        role.value,
        f"Run one {role.value} node of a cluster file, until SIGTERM.",
        f"pdspan {role.value} --cluster cluster.toml --node {role.value}-1",
    )
    _add_cluster(parser)
    parser.add_argument("--node", required=True, help="the node's name in the cluster file")
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="allow plain text on an address that other machines can reach",
    )
    # For `pdspan up`: die with this parent, even if it is killed.
    parser.add_argument("--parent-pid", type=whole(1), help=argparse.SUPPRESS)
    parser.set_defaults(command="node", role=role)


def _add_models(commands: Commands) -> None:
    parser = add_command(
        commands, "models", "List or fetch the models known by name.", "pdspan models fetch"
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = add_command(
        actions, "list", "List models, and where each one is.", "pdspan models list"
    )
    listing.set_defaults(command="models list")
    fetch = add_command(
        actions,
        "fetch",
        "Download and convert a model, unless that is done; print its directory.",
        "pdspan models fetch smollm2-135m-instruct",
    )
    fetch.add_argument(
        "name",
        nargs="?",
        default=DEFAULT_MODEL,
        help="a name, a directory or a hub id (default: %(default)s)",
    )
    fetch.set_defaults(command="models fetch")


def _add_config(commands: Commands) -> None:
    parser = add_command(
        commands,
        "config",
        "Print the settings of a cluster file with every default filled in, as TOML.",
        "pdspan config --cluster cluster.toml --set transfer.mode=bulk",
    )
    _add_cluster(parser)
    parser.set_defaults(command="config")


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cluster", required=True, type=Path, metavar="FILE", help="the cluster file (TOML)"
    )
    _add_set(parser)


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help="override a setting, e.g. engine.page_tokens=64; may be repeated",
    )
