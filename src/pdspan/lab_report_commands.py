"""``pdspan lab compare`` and ``pdspan lab report``: what the records of experiments say.

Both only read record files: measuring and comparing are joined by nothing else. ``compare`` exits
with 0 when it found no difference, 3 when it found one, 4 when the arms' results were not
identical, so that a script can tell them apart.
"""

from argparse import Namespace
from pathlib import Path

from pdspan.subcommand import Commands, add_command


def add_to(actions: Commands) -> None:
    _add_compare(actions)
    _add_report(actions)


def _add_compare(actions: Commands) -> None:
    parser = add_command(
        actions,
        "compare",
        "Compare two record files, or two arms: the effect with its confidence interval.",
        "pdspan lab compare results/transfer.json --arms sequential,auto",
    )
    parser.add_argument("a", type=Path, metavar="A", help="a record file")
    parser.add_argument("b", type=Path, metavar="B", nargs="?", help="another one (default: A)")
    parser.set_defaults(run=run_compare)


def _add_report(actions: Commands) -> None:
    parser = add_command(
        actions,
        "report",
        "Write one HTML page, PNG plots and CSV tables of the records in a directory.",
        "pdspan lab report results/ --out report/",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="where the record files are")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: DIR/report")
    parser.set_defaults(run=run_report)


def run_compare(arguments: Namespace) -> int:
    raise NotImplementedError


def run_report(arguments: Namespace) -> int:
    raise NotImplementedError
