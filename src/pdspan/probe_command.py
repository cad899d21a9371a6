"""``pdspan probe``: what one path, or each path of a cluster file, gives KV on its way.

Exit status: 0, also when the path is slow; 1 when a target could not be measured; 2 for wrong
usage.
"""

import asyncio
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from pdspan.subcommand import Commands, add_command, whole

if TYPE_CHECKING:
    from pdcore.errors import PdspanError
    from pdspan.probe import Report
    from pdspan.probe_job import ProbeJob
    from pdspan.probe_report import ProbeReport

SUMMARY = (
    "Measure the path to a decode node, predict every transfer mode on it, say what holds it back."
)


def add_to(commands: Commands) -> None:
    parser = add_command(
        commands,
        "probe",
        SUMMARY,
        "pdspan probe 10.0.0.2:7003 --prefill-tokens-per-s 8000\n"
        "  pdspan probe --cluster cluster.toml --json\n\n"
        "run it where the prefill node runs: the path from here is what it measures",
    )
    where = parser.add_argument_group("where")
    where.add_argument("target", nargs="?", metavar="TARGET", help="a decode node, host:port")
    where.add_argument(
        "--cluster", type=Path, metavar="FILE", help="every decode node of a cluster file"
    )
    where.add_argument(
        "--ca", metavar="FILE", help="the node speaks TLS: certificates that signed its own"
    )
    where.add_argument("--cert", metavar="FILE", help="with mutual TLS: the certificate to show")
    where.add_argument("--key", metavar="FILE", help="and its private key")
    what = parser.add_argument_group("what is predicted")
    what.add_argument(
        "--tokens",
        type=whole(1),
        default=2048,
        metavar="N",
        help="length of the prompt (default: 2048)",
    )
    what.add_argument(
        "--page-bytes",
        metavar="SIZE",
        help="another model's pages, e.g. 2MiB (default: the node's)",
    )
    what.add_argument(
        "--page-tokens", type=whole(1), metavar="N", help="of such a page (default: the node's)"
    )
    what.add_argument(
        "--prefill-tokens-per-s",
        type=float,
        metavar="P",
        help="how fast the prefill node computes a prompt (default: from the metrics of the cluster"
        " file's prefill nodes, where they have served something)",
    )
    what.add_argument(
        "--decode-tokens-per-s",
        type=float,
        metavar="D",
        help="how fast the decode node would compute it (default: like the prefill node)",
    )
    effort = parser.add_argument_group("how it measures")
    effort.add_argument(
        "--connections",
        type=whole(1, 64),
        default=4,
        metavar="N",
        help="at once (default: 4)",
    )
    effort.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="most for one rate (default: 5)"
    )
    effort.add_argument(
        "--bytes", default="256MiB", metavar="SIZE", help="most sent for one rate (default: 256MiB)"
    )
    effort.add_argument(
        "--rate", metavar="RATE", help="take this, e.g. 1gbit, and send nothing but pings"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help="a setting to predict with, e.g. transfer.frame_bytes=1048576; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print one object instead of text")
    parser.set_defaults(command="probe")


def run(arguments: Namespace) -> int:
    """Raises ConfigError for wrong usage, most of it before anything is sent."""
    from pdcore.errors import PdspanError
    from pdspan.probe_job import read_job
    from pdspan.probe_report import as_json
    from pdspan.probe_text import as_text
    from pdspan.progress import open_progress

    job = read_job(arguments)
    with open_progress() as progress:
        outcomes = asyncio.run(_probe_all(job, progress.report))
    failures = [outcome for outcome in outcomes if isinstance(outcome, PdspanError)]
    reports = [outcome for outcome in outcomes if not isinstance(outcome, PdspanError)]
    for failure in failures:
        print(f"pdspan: error: {failure}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"paths": [as_json(report) for report in reports]}, indent=2))
    elif reports:
        print("\n\n".join(as_text(report) for report in reports))
    return 1 if failures else 0


async def _probe_all(job: "ProbeJob", report: "Report") -> "list[ProbeReport | PdspanError]":
    """One after the other: at once they would take the line from each other."""
    from pdcore.errors import ConfigError, PdspanError

    outcomes: list[ProbeReport | PdspanError] = []
    prefill = await job.prefill_rate()
    for address in await job.addresses():
        try:
            outcomes.append(await job.probe(address, prefill, report))
        except ConfigError:
            raise
        except PdspanError as error:
            outcomes.append(error)
    return outcomes
