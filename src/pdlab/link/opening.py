"""Brings links up and takes them down: for a block of code, or until someone says so."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Protocol

from pdcore.errors import ConfigError
from pdlab.link.hosts import Host
from pdlab.link.link import Link, LinkControl
from pdlab.link.loopback import LoopbackLink
from pdlab.link.netem import NetemLink
from pdlab.link.processes import Process
from pdlab.link.profile import LinkProfile, TcpSettings
from pdlab.link.relay import RelayLink
from pdlab.link.state import LinkState, known_links, register, take_down, update
from pdlab.link.tun import TunLink


class LinkKind(Protocol):
    def bring_up(self, state: LinkState, lifeline: int | None) -> LinkState:
        """The state once it is up, noted as far as it came. ConfigError when it cannot be here.

        Its process ends when the other end of the pipe ``lifeline`` is closed, if there is one.
        """

    def hosts(self, state: LinkState) -> tuple[Host, Host]: ...

    def control(self, state: LinkState) -> LinkControl: ...


LINKS: Mapping[str, LinkKind] = {
    "tun": TunLink(),
    "netem": NetemLink(),
    "relay": RelayLink(),
    "loopback": LoopbackLink(),
}

_numbers = count(1)


@contextmanager
def open_link(
    kind: str,
    profile: LinkProfile,
    tcp: TcpSettings = TcpSettings(),  # noqa: B008  a value
) -> Iterator[Link]:
    """A link for this block. Whatever happens in it, nothing is left, processes on it included."""
    name = f"{os.getpid()}-{next(_numbers)}"
    state = LinkState(name, kind, profile, tcp, owner=Process.with_pid(os.getpid()))
    register(state)
    lifeline, held = os.pipe()
    try:
        yield _bring_up(state, lifeline)
    finally:
        take_down(state)
        os.close(lifeline)
        os.close(held)


def keep_link(name: str, kind: str, profile: LinkProfile, tcp: TcpSettings) -> Link:
    """A link that outlives this process, until ``take_down``."""
    state = LinkState(name, kind, profile, tcp, owner=Process.with_pid(os.getpid()))
    register(state)
    try:
        link = _bring_up(state, lifeline=None)
        update(replace(find_link(name), owner=None))
    except BaseException:
        take_down(state)
        raise
    return link


def find_link(name: str) -> LinkState:
    """ConfigError when it is not up."""
    for state in known_links():
        if state.name == name:
            return state
    raise ConfigError(f"no link {name!r} is up; 'pdspan link up' brings it up")


def attach(state: LinkState) -> Link:
    """The link that ``state`` tells of."""
    kind = LINKS[state.kind]

    def note(profile: LinkProfile) -> None:
        update(replace(find_link(state.name), profile=profile))

    control = kind.control(state)
    return Link(state.kind, state.profile, state.tcp, kind.hosts(state), control, note)


def _bring_up(state: LinkState, lifeline: int | None) -> Link:
    if state.kind not in LINKS:
        raise ConfigError(f"no link {state.kind!r}; there are: {', '.join(LINKS)}")
    return attach(LINKS[state.kind].bring_up(state, lifeline))
