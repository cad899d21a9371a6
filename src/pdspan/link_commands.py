"""``pdspan link``: an emulated link that stays up between commands, until ``pdspan link down``.

What each command does is in ``pdlab.link``; here words become values, and values become text or
JSON.
"""

import argparse
import json
import os
import sys
from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from pdcore.errors import ConfigError, LinkFailed, MeasurementFailed
from pdspan.subcommand import Commands, add_command

if TYPE_CHECKING:
    from pdlab.link import LinkProfile
    from pdlab.link.state import LinkState

DEFAULT_NAME = "link"


def add_to(commands: Commands) -> None:
    parser = add_command(
        commands,
        "link",
        "An emulated link between two hosts on this machine, for experiments.",
        "pdspan link up --rtt 50ms --rate 1gbit",
    )
    parser.set_defaults(command="link")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_up(actions)
    status = add_command(
        actions, "status", "Which links are up, and how they are.", "pdspan link status"
    )
    status.add_argument("--json", action="store_true", help="print JSON, one object per link")
    status.add_argument("--name", help="of this link alone (default: of all)")
    status.set_defaults(run=_status)
    down = add_command(
        actions, "down", "Take the link down, and what runs on it.", "pdspan link down"
    )
    _add_name(down)
    down.set_defaults(run=_down)
    _add_exec(actions)
    measure = add_command(
        actions, "measure", "RTT and rate as they are now.", "pdspan link measure"
    )
    measure.add_argument("--json", action="store_true", help="print one JSON object")
    _add_name(measure)
    measure.set_defaults(run=_measure)


def run(arguments: Namespace) -> int:
    """Run the action that was asked for; its exit status."""
    status: int = arguments.run(arguments)
    return status


def _add_up(actions: Commands) -> None:
    parser = add_command(
        actions,
        "up",
        "Bring up a link; its hosts are 'a' and 'b'. Needs root, except with --relay.",
        "pdspan link up --rtt 50ms --rate 1gbit --loss 0.01% --jitter 2ms --queue auto",
    )
    parser.add_argument("--rtt", default="0ms", help="round-trip time (default: %(default)s)")
    parser.add_argument("--rate", help="bits per second on the wire, each way (default: any)")
    parser.add_argument("--loss", default="0", help="share of packets lost (default: none)")
    parser.add_argument("--jitter", default="0ms", help="added to the rtt at most (default: none)")
    parser.add_argument(
        "--queue", default="auto", help="size of the queue, or auto: 2 BDP, at least 1MiB (default)"
    )
    parser.add_argument(
        "--buffers", default="large", help="TCP buffers of the hosts: large (default) or stock"
    )
    parser.add_argument("--congestion", help="congestion control of the hosts, e.g. cubic")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--netem", action="store_true", help="by the kernel's netem, where there is one"
    )
    kind.add_argument(
        "--relay",
        metavar="PORTS",
        help="without root: relay TCP to these ports of this machine, e.g. 8000,9000",
    )
    _add_name(parser)
    parser.set_defaults(run=_up)


def _add_exec(actions: Commands) -> None:
    parser = add_command(
        actions,
        "exec",
        "Run a command on a host of the link.",
        "pdspan link exec a -- ping 198.18.0.2",
    )
    _add_name(parser)
    parser.add_argument("host", choices=("a", "b"))
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND ...")
    parser.set_defaults(run=_exec)


def _up(arguments: Namespace) -> int:
    from pdlab.link import TcpSettings, keep_link

    has_relay = arguments.relay is not None
    kind = "netem" if arguments.netem else "relay" if has_relay else "tun"
    ports = [_port(text) for text in arguments.relay.split(",")] if has_relay else []
    if len(set(ports)) < len(ports):
        raise ConfigError(f"link up --relay: {arguments.relay!r} names a port twice")
    tcp = TcpSettings(buffers=arguments.buffers, congestion=arguments.congestion)
    link = keep_link(arguments.name, kind, _profile(arguments), tcp)
    print(f"{arguments.name} is up: {_in_words(kind, link.profile)}")
    for host in (link.a, link.b):
        print(f"  {host.name}  {host.address}")
    for port in ports:
        print(f"  port {port} of this machine is reached as {link.address_of(link.b, port)}")
    return 0


def _status(arguments: Namespace) -> int:
    """1 when a link does not answer; the others are told all the same."""
    from pdlab.link import known_links

    name = arguments.name
    states = [state for state in known_links() if state.alive and name in (None, state.name)]
    if name is not None and not states:
        raise ConfigError(f"no link {name!r} is up; 'pdspan link up' brings it up")
    found = [(state, *_counted(state)) for state in states]
    for state, ways, problem in found:
        if arguments.json:
            print(json.dumps({**asdict(state), "counters": ways, "problem": problem}))
            continue
        is_up = "is up" if problem is None else "does not answer"
        print(f"{state.name} {is_up}: {_in_words(state.kind, state.profile)}")
        for way, counters in (ways or {}).items():
            print(f"  {way:8}", ", ".join(f"{value} {key}" for key, value in counters.items()))
        if problem is not None:
            print(f"  {problem}")
    if not states and not arguments.json:
        print("no link is up")
    return 1 if any(problem is not None for _, _, problem in found) else 0


def _counted(state: "LinkState") -> tuple[dict[str, dict[str, int]] | None, str | None]:
    """What the link has counted, where its kind counts; and why it does not answer, if so."""
    from pdlab.link import attach

    try:
        counters = attach(state).counters()
    except LinkFailed as error:
        return None, str(error)
    return None if counters is None else asdict(counters), None


def _down(arguments: Namespace) -> int:
    from pdlab.link import clear_leftovers, find_link, take_down

    for name in clear_leftovers():
        print(f"{name}: cleared what a killed run had left behind")
    try:
        state = find_link(arguments.name)
    except ConfigError:
        print(f"no link {arguments.name!r} is up")
        return 0
    take_down(state)
    print(f"{arguments.name} is down")
    return 0


def _exec(arguments: Namespace) -> int:
    from pdlab.link import attach, find_link

    argv = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not argv:
        raise ConfigError("link exec: no command: 'pdspan link exec a -- COMMAND ...'")
    link = attach(find_link(arguments.name))
    command = (link.a if arguments.host == "a" else link.b).command(*argv)
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise ConfigError(f"link exec: {command[0]}: {error.strerror}") from None


def _measure(arguments: Namespace) -> int:
    from pdlab.link import attach, find_link
    from pdlab.quantities import format_bits_per_s, format_seconds

    try:
        found = attach(find_link(arguments.name)).measure()
    except MeasurementFailed as error:
        raise MeasurementFailed(f"link {arguments.name!r}: {error}") from None
    if arguments.json:
        print(json.dumps(asdict(found)))
        return 0
    rtt_min, rtt_median = format_seconds(found.rtt_min_s), format_seconds(found.rtt_median_s)
    print(f"asked for: {_in_words(found.kind, found.profile)}")
    print(f"rtt        {rtt_min} min, {rtt_median} median")
    print(f"rate       {format_bits_per_s(found.rate_bps)} of payload, {found.num_flows} TCP flows")
    for limit in found.limits:
        print(limit)
    return 0


def _profile(arguments: Namespace) -> "LinkProfile":
    from pdlab.link import LinkProfile
    from pdlab.quantities import parse_bits_per_s, parse_bytes, parse_seconds, parse_share

    return LinkProfile(
        rtt_s=parse_seconds(arguments.rtt),
        rate_bps=None if arguments.rate is None else parse_bits_per_s(arguments.rate),
        loss=parse_share(arguments.loss),
        jitter_s=parse_seconds(arguments.jitter),
        queue_bytes=None if arguments.queue == "auto" else parse_bytes(arguments.queue),
    )


def _in_words(kind: str, profile: "LinkProfile") -> str:
    """Loopback is as it is: it has no queue."""
    return kind if kind == "loopback" else f"{kind}, {profile}"


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ConfigError(f"link up --relay: {text!r} is not a port")
    return int(text)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--name", default=DEFAULT_NAME, help="of several links (default: %(default)s)"
    )
