"""``pdspan``: runs the command that was asked for.

Commands import what they need when they run, so ``--help`` is instant and the router's process
never loads torch. Exit status: 0 done, 1 failed while running, 2 wrong usage or configuration (one
line on stderr, no traceback), 130 interrupted.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence

from pdcore.errors import ConfigError, PdspanError
from pdspan.arguments import build_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status. Wrong usage raises SystemExit(2), as argparse does."""
    arguments = build_parser().parse_args(argv)
    try:
        return COMMANDS[arguments.command](arguments)
    except PdspanError as error:
        print(f"pdspan: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130


def _up(arguments: Namespace) -> int:
    from pdspan.local_cluster import UpOptions
    from pdspan.up import run_up

    options = UpOptions(
        model=arguments.model,
        port=arguments.port,
        num_prefill=arguments.prefill,
        num_decode=arguments.decode,
        transfer=arguments.transfer,
        dtype=arguments.dtype,
        weights=arguments.weights,
        overrides=tuple(arguments.overrides),
    )
    return run_up(options, json_output=arguments.json)


def _node(arguments: Namespace) -> int:
    from pdspan.node import run_one_node

    return run_one_node(
        arguments.role,
        arguments.cluster,
        arguments.node,
        overrides=arguments.overrides,
        insecure=arguments.insecure,
        parent_pid=arguments.parent_pid,
    )


def _models_list(arguments: Namespace) -> int:
    from pdspan.models import list_models

    for model in list_models():
        print(f"{model.name}\n  {model.description}\n  {model.path or 'not fetched yet'}")
    return 0


def _models_fetch(arguments: Namespace) -> int:
    from pdspan.models import resolve_model
    from pdspan.progress import open_progress

    with open_progress() as progress:
        directory = resolve_model(arguments.name, progress.report)
    print(directory)
    return 0


def _config(arguments: Namespace) -> int:
    from pdcore.settings import load_cluster
    from pdspan.cluster_checks import check_mode
    from pdspan.toml_text import settings_to_toml

    settings = load_cluster(arguments.cluster, arguments.overrides)
    check_mode(settings)
    print(settings_to_toml(settings), end="")
    return 0


def _lab(arguments: Namespace) -> int:
    from pdspan import lab_arguments

    return lab_arguments.run(arguments)


def _link(arguments: Namespace) -> int:
    from pdspan import link_commands

    return link_commands.run(arguments)


def _probe(arguments: Namespace) -> int:
    from pdspan import probe_command

    return probe_command.run(arguments)


COMMANDS: Mapping[str, Callable[[Namespace], int]] = {
    "up": _up,
    "node": _node,
    "models list": _models_list,
    "models fetch": _models_fetch,
    "config": _config,
    "lab": _lab,
    "link": _link,
    "probe": _probe,
}
