"""``pdspan lab``: the group of the laboratory's commands.

Each command file has an ``add_to(actions)`` that adds its parsers and sets ``run`` on each of them:
a function from the parsed arguments to an exit status. It is listed here, and nothing else.
"""

from argparse import Namespace

from pdspan import lab_engine_command, lab_report_commands, lab_run_commands, lab_transfer_command
from pdspan.subcommand import Commands, add_command

COMMAND_FILES = (
    lab_transfer_command,
    lab_run_commands,
    lab_report_commands,
    lab_engine_command,
)


def add_to(commands: Commands) -> None:
    parser = add_command(
        commands,
        "lab",
        "Experiments: measure transfers and serving on emulated links, compare, report.",
        "pdspan lab report results/",
    )
    parser.set_defaults(command="lab")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for command_file in COMMAND_FILES:
        command_file.add_to(actions)


def run(arguments: Namespace) -> int:
    """Run the action that was asked for; its exit status."""
    status: int = arguments.run(arguments)
    return status
