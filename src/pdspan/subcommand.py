"""How a command is added to the command line: summary, description and an example, all alike.

Files that add commands import nothing heavy, so that ``--help`` stays instant.
"""

import argparse
from collections.abc import Callable
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


def whole(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """An argument's type: whole numbers in a range."""
    wanted = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"

    def parse(text: str) -> int:
        number = int(text) if text.isdecimal() else -1
        if number < minimum or (maximum is not None and number > maximum):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {wanted}")
        return number

    return parse
