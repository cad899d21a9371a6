"""``pdspan lab compare`` and ``pdspan lab report``: what the records of experiments say.

Both only read record files: measuring and comparing are joined by nothing else. ``compare`` exits
with 0 when it found no difference, 3 when it found one, 4 when the arms' results were not identical
(whatever their speed), so that a script can tell them apart. 1 and 2 are errors, as everywhere.
"""

import json
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pdcore.errors import ConfigError
from pdspan.subcommand import Commands, add_command

if TYPE_CHECKING:
    from pdlab.compare import Comparison

EXIT_SAME, EXIT_DIFFERENT, EXIT_NOT_IDENTICAL = 0, 3, 4


def add_to(actions: Commands) -> None:
    _add_compare(actions)
    _add_report(actions)


def _add_compare(actions: Commands) -> None:
    parser = add_command(
        actions,
        "compare",
        "Compare two record files, or two arms of one: the effect, with its confidence interval."
        " Exit status: 0 no difference found, 3 a difference, 4 results that are not identical.",
        "pdspan lab compare results/transfer.json --arms sequential,auto",
    )
    parser.add_argument("a", type=Path, metavar="A", help="a record file")
    parser.add_argument(
        "b", type=Path, metavar="B", nargs="?", help="another run's (default: compare arms of A)"
    )
    parser.add_argument(
        "--arms",
        type=_two_names,
        metavar="A,B",
        help="which arms (default: the two, or all shared)",
    )
    parser.add_argument("--metric", help="e.g. itl_s (default: ttft_s, or goodput_bps)")
    parser.add_argument(
        "--aa",
        action="store_true",
        help="A is a directory of A/A runs: count in how many of them a difference is found",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.set_defaults(run=run_compare)


def _add_report(actions: Commands) -> None:
    parser = add_command(
        actions,
        "report",
        "Write one self-contained HTML page of the records in a directory, and its plots (PNG) and"
        " tables (CSV) beside it.",
        "pdspan lab report results/ --out report/",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="where the record files are")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: DIR/report")
    parser.set_defaults(run=run_report)


def run_compare(arguments: Namespace) -> int:
    with _lab_packages():
        if arguments.aa:
            return _calibrate(arguments)
        from pdlab.compare import compare_arms, compare_records
        from pdlab.compare_text import comparison_object, comparison_text
        from pdlab.record_files import read_record

        a = read_record(arguments.a)
        if arguments.b is None:
            comparison = compare_arms(a, arguments.arms, arguments.metric)
        else:
            b = read_record(arguments.b)
            comparison = compare_records(a, b, arguments.arms, arguments.metric)
    if arguments.json:
        print(json.dumps(comparison_object(comparison)))
    else:
        print(comparison_text(comparison))
    return _status(comparison)


def run_report(arguments: Namespace) -> int:
    with _lab_packages():
        from pdlab.record_directory import read_directory
        from pdlab.report import write_report

        directory: Path = arguments.directory
        found = read_directory(directory)
        for name in found.left_out:
            print(f"{name}: not a record of pdspan lab, left out", file=sys.stderr)
        print(write_report(found.records, arguments.out or directory / "report"))
    return 0


def _calibrate(arguments: Namespace) -> int:
    from pdlab.compare import AA_ALLOWED, AA_RUNS, calibrate
    from pdlab.record_directory import read_directory

    if arguments.b is not None or arguments.arms is not None:
        raise ConfigError(
            "--aa compares the arms of each run in one directory: leave out B, --arms"
        )
    runs = read_directory(arguments.a).records.values()
    result = calibrate(runs, arguments.metric)
    if arguments.json:
        counts = {"num_runs": result.num_runs, "num_found": result.num_found}
        print(json.dumps({**counts, "passed": result.passed}))
    else:
        print(
            f"{result.num_found} of {result.num_runs} A/A runs found a difference;"
            f" at most {AA_ALLOWED} of {AA_RUNS} may"
        )
    return EXIT_SAME if result.passed else EXIT_DIFFERENT


def _status(comparison: "Comparison") -> int:
    if comparison.mismatches:
        return EXIT_NOT_IDENTICAL
    return EXIT_DIFFERENT if comparison.found else EXIT_SAME


def _two_names(text: str) -> tuple[str, str]:
    match text.split(","):
        case [a, b] if a and b:
            return a, b
    raise ArgumentTypeError(f"{text!r} is not two names with a comma between them")


@contextmanager
def _lab_packages() -> Iterator[None]:
    """Statistics and plots need packages that a serving installation has not."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("numpy", "matplotlib"):
            raise
        raise ConfigError(f"{package} is not installed; pip install 'pdspan[lab]'") from None
