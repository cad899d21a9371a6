"""``pdspan lab transfer``: transfers alone, over emulated links, arm against arm.

Words become trials here; ``pdlab.transfer`` measures. Exit status 0 when every page of every
repetition arrived as it was sent and no yardstick was too slow (with ``--suite``: and every bar is
met), else 1.
"""

import argparse
import asyncio
import shlex
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pdcore.errors import ConfigError
from pdspan.cluster_checks import check_mode
from pdspan.subcommand import Commands, add_command, whole

if TYPE_CHECKING:
    from pdlab.link import LinkProfile
    from pdlab.records import TransferRecord
    from pdlab.transfer.bench import Step
    from pdlab.transfer.trial import Trial

ARMS = "sequential,bulk,windowed,coalesced,pipelined,auto,raw_tcp"
ANY = "any"
LOOPBACK = "loopback"
REPETITIONS = 5
SUITES = ("bars", "grid")


def add_to(actions: Commands) -> None:
    parser = add_command(
        actions,
        "transfer",
        "Move pages between two processes over an emulated link, arm against arm. Needs root.",
        "pdspan lab transfer --rtt 0,50ms --rate 1gbit --page 64KiB,2MiB --bytes 256MiB"
        " --json out.json",
    )
    _add_grid(parser)
    _add_link(parser)
    parser.add_argument(
        "--json", type=Path, metavar="OUT", help="write the record: one JSON object"
    )
    parser.add_argument(
        "--suite",
        choices=SUITES,
        help="instead of a grid of your own: 'bars' judges every bar of a transfer (20 minutes),"
        " 'grid' every combination once, for the verdicts",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("docs/results"),
        metavar="DIR",
        help="where a suite's record and the results page go (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def _add_grid(parser: argparse.ArgumentParser) -> None:
    for option, default, what in (
        ("--rtt", "0ms", "round trips, e.g. 0,1,10,50,100,200ms"),
        ("--rate", "1gbit", f"rates on the wire, e.g. 1gbit,5gbit; '{ANY}': as fast as it goes"),
        ("--page", "360KiB", "page sizes, e.g. 12KiB,64KiB,360KiB,2MiB"),
        ("--bytes", "64MiB", "payloads, e.g. 32MiB,256MiB"),
        ("--arms", ARMS, "what is compared: transfer modes, raw_tcp, raw_grpc, nixl"),
    ):
        parser.add_argument(
            option, default=default, metavar="LIST", help=f"{what} (default: %(default)s)"
        )
    parser.add_argument(
        "--repetitions",
        type=whole(1),
        metavar="N",
        help=f"of each arm, interleaved (default: {REPETITIONS}, or as the suite has it)",
    )
    parser.add_argument(
        "--limit",
        default="5s",
        help="time of one repetition; a slow arm moves fewer pages (default: %(default)s)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help="a setting of both ends, e.g. transfer.window_bytes=1048576; may be repeated",
    )


def _add_link(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--link",
        default="tun",
        metavar="LIST",
        help="kinds of link: tun, netem, relay, or loopback as it is (default: %(default)s)",
    )
    parser.add_argument("--loss", default="0", help="share of packets lost (default: none)")
    parser.add_argument("--jitter", default="0ms", help="added to the rtt at most (default: none)")
    parser.add_argument("--buffers", default="large", help="TCP buffers: large (default) or stock")
    parser.add_argument("--congestion", help="congestion control, e.g. cubic (default: kernel's)")


def run_options(scenario: str, options: Mapping[str, str], record: Path) -> int:
    """As if the options had been given on the command line, and ``--json record``.

    Raises ConfigError for an option that there is not.
    """
    parser = argparse.ArgumentParser(add_help=False)
    _add_grid(parser)
    _add_link(parser)
    arguments = parser.parse_args([])
    for name, value in options.items():
        if name == "repetitions":
            arguments.repetitions = _whole(scenario, value)
        elif name in vars(arguments) and name != "overrides":
            setattr(arguments, name, value)
        else:
            known = ", ".join(sorted(vars(arguments).keys() - {"overrides"}))
            raise ConfigError(f"{scenario}: unknown option {name!r}; known: {known}")
    arguments.json = record
    return _run_grid(scenario, arguments)


def run(arguments: Namespace) -> int:
    if arguments.suite is not None:
        return _run_suite(arguments.suite, arguments.out, arguments.repetitions)
    return _run_grid("pdspan " + shlex.join(sys.argv[1:]), arguments)


def _run_grid(scenario: str, arguments: Namespace) -> int:
    from pdlab.record_files import check_writable, write_transfer

    steps = _steps(arguments)
    if arguments.json is not None:
        check_writable(arguments.json)
    record = _measured(scenario, steps)
    status = _shown(record)  # before the disk can be full
    if arguments.json is not None:
        write_transfer(arguments.json, record)
    return status


def _run_suite(name: str, directory: Path, repetitions: int | None) -> int:
    from pdlab.record_files import check_writable, write_transfer
    from pdlab.transfer import results_page
    from pdlab.transfer.suites import SUITES as STEPS
    from pdlab.transfer.suites import repeated

    steps = [step if repetitions is None else repeated(step, repetitions) for step in STEPS[name]()]
    files = {"bars": results_page.BARS_RECORD, "grid": results_page.GRID_RECORD}
    check_writable(directory / files[name])
    record = _measured(f"pdspan lab transfer --suite {name}", steps)
    write_transfer(directory / files[name], record)
    status = _shown(record)
    if not (directory / results_page.BARS_RECORD).exists():
        return status
    judged = results_page.write_page(directory)
    for one in judged:
        said = {True: "met", False: "NOT met", None: "not measured"}[one.is_met]
        worst = "" if one.worst is None or one.worst.value is None else f"{one.worst.value:.3f}, "
        print(f"{one.bar.what}: {worst}{one.bar.bound}: {said}")
    print(f"{directory / results_page.PAGE} says where")
    return status or int(any(one.is_met is False for one in judged))


def _measured(scenario: str, steps: "Sequence[Step]") -> "TransferRecord":
    from pdlab.transfer.arms import NIXL
    from pdlab.transfer.nixl_environment import nixl_program
    from pdlab.transfer.run import run_steps
    from pdspan.progress import open_progress

    uses_nixl = any(NIXL in step.trial.arms for step in steps)
    with open_progress() as progress:
        nixl = nixl_program() if uses_nixl else None
        return asyncio.run(run_steps(scenario, steps, progress.report, nixl=nixl))


def _shown(record: "TransferRecord") -> int:
    """The table, and in one line each what is wrong."""
    from pdlab.transfer.table import print_table, problems

    print_table(record)
    found = problems(record)
    for problem in found:
        print(f"pdspan: {problem}", file=sys.stderr)
    return 1 if found else 0


def _steps(arguments: Namespace) -> "list[Step]":
    """Every combination that was asked for. Raises ConfigError, before anything is started."""
    from pdcore.settings import cluster_from_table
    from pdlab.link import LINKS
    from pdlab.quantities import parse_bytes, parse_list
    from pdlab.transfer.blocks import Blocks
    from pdlab.transfer.trial import grid

    kinds = arguments.link.split(",")
    for kind in kinds:
        if kind not in LINKS:
            raise ConfigError(f"--link is {kind!r}; one of {', '.join(LINKS)}")
    check_mode(cluster_from_table({}, arguments.overrides, origin="--set"))
    pages = parse_list(arguments.page, parse_bytes)
    payloads = parse_list(arguments.bytes, parse_bytes)
    template = _template(arguments, pages[0], payloads[0])
    return [
        Blocks(trial)
        for kind in kinds
        for trial in grid(_profiles(arguments, kind), pages, payloads, _of_kind(template, kind))
    ]


def _of_kind(template: "Trial", kind: str) -> "Trial":
    """Loopback is only ever as it is, its TCP settings too."""
    from pdlab.link import TcpSettings

    tcp = TcpSettings() if kind == LOOPBACK else template.tcp
    return replace(template, kind=kind, tcp=tcp)


def _template(arguments: Namespace, page_bytes: int, payload_bytes: int) -> "Trial":
    from pdlab.link import LinkProfile, TcpSettings
    from pdlab.quantities import parse_seconds
    from pdlab.transfer.arms import NIXL, expanded
    from pdlab.transfer.trial import Trial

    arms = expanded(arguments.arms.split(","))
    if NIXL in arms and "relay" in arguments.link:
        raise ConfigError("nixl chooses its own ports, which a relay does not know: use --link tun")
    return Trial(
        LinkProfile(),
        page_bytes,
        payload_bytes,
        arms,
        tcp=TcpSettings(buffers=arguments.buffers, congestion=arguments.congestion),
        repetitions=arguments.repetitions or REPETITIONS,
        limit_s=parse_seconds(arguments.limit),
        overrides=tuple(arguments.overrides),
    )


def _profiles(arguments: Namespace, kind: str) -> "list[LinkProfile]":
    """Loopback is only ever as it is: one profile, whatever was asked for."""
    from pdlab.link import LinkProfile
    from pdlab.quantities import parse_bits_per_s, parse_list, parse_seconds, parse_share

    rates: list[float | None] = [
        None if word.strip() == ANY else parse_bits_per_s(word)
        for word in arguments.rate.split(",")
    ]
    loss, jitter_s = parse_share(arguments.loss), parse_seconds(arguments.jitter)
    rtts_s = parse_list(arguments.rtt, parse_seconds)
    if kind == LOOPBACK:
        return [LinkProfile()]
    return [LinkProfile(rtt_s, rate, loss, jitter_s) for rate in rates for rtt_s in rtts_s]


def _whole(scenario: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"{scenario}: repetitions is {text!r}: a whole number, at least 1")
    return int(text)
