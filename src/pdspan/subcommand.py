"""How a command is added to the command line: summary, description and an example, all alike.

Files that add commands import nothing heavy, so that ``--help`` stays instant.
"""

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_command(
    commands: Commands, name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    """A parser for ``name``; set ``command`` on it with ``set_defaults``."""
    return commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
