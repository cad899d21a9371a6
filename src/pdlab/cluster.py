"""A cluster on the two hosts of a link: prefill on ``a``, router and decode on ``b``.

Its nodes are the same commands that an operator runs. Each host has a cluster file of its own, in
which the other host's nodes stand under the address that the link gives them. Logs stay in the
directory. Whatever happens inside the block, leaving it ends all nodes, and they die with this
process.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Self

from pdcore.cluster import NodeRole
from pdcore.errors import PeerUnavailable
from pdlab.client_process import ClientProcess
from pdlab.link import Host, Link
from pdlab.record_files import disk_errors

READY_S = 240.0  # torch is imported and a model read, three times on a few cores
STOP_S = 15.0


@dataclass(frozen=True, slots=True)
class Place:
    """A node and where it runs; ``port`` is free there."""

    role: NodeRole
    host: Host
    port: int

    @property
    def address(self) -> str:
        return f"{self.host.address}:{self.port}"

    def address_from(self, viewer: Host, link: Link) -> str:
        return self.address if viewer == self.host else link.address_of(self.host, self.port)


class ServingCluster:
    """``settings`` are the cluster file's, but for its nodes; ``overrides`` as ``--set`` takes."""

    def __init__(
        self,
        link: Link,
        settings: Mapping[str, Any],
        directory: Path,
        overrides: Sequence[str] = (),
    ) -> None:
        hosts = {NodeRole.ROUTER: link.b, NodeRole.DECODE: link.b, NodeRole.PREFILL: link.a}
        ports = _free_ports(len(hosts))
        self._places = [
            Place(role, host, port) for (role, host), port in zip(hosts.items(), ports, strict=True)
        ]
        self._directory = directory
        self._overrides = overrides
        with disk_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            for host in (link.a, link.b):
                addresses = {place.role: place.address_from(host, link) for place in self._places}
                lines = _toml_lines(settings, self._places, addresses)
                self._file_of(host).write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._processes: dict[NodeRole, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return f"http://{self._places[0].address}"

    def log_of(self, role: NodeRole) -> Path:
        return self._directory / f"{role.value}.log"

    def wait_until_ready(self, client: ClientProcess) -> None:
        """Until requests can be served. Raises PeerUnavailable with what a node said last."""
        end_s = monotonic() + READY_S
        while not client.wait_until_ready(self.url, within_s=2.0):
            self.check()
            if monotonic() > end_s:
                raise PeerUnavailable(
                    f"the cluster was not ready after {READY_S:g} s; its logs: {self._directory}"
                )

    def check(self) -> None:
        """Raises PeerUnavailable for a node that has ended."""
        for role, process in self._processes.items():
            if process.poll() is not None:
                lines = self.log_of(role).read_text(errors="replace").splitlines()
                said = lines[-1] if lines else "nothing"
                raise PeerUnavailable(f"the {role} node ended ({process.returncode}): {said}")

    def pause(self) -> None:
        """All nodes stop where they are, and compute nothing."""
        for process in self._processes.values():
            process.send_signal(signal.SIGSTOP)

    @contextmanager
    def running(self) -> Iterator[None]:
        """For this block a paused cluster goes on."""
        self._go_on()
        try:
            yield
        finally:
            self.pause()

    def _go_on(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self._stop)
            for place in self._places:
                self._processes[place.role] = self._start(place)
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _file_of(self, host: Host) -> Path:
        return self._directory / f"cluster-{host.name}.toml"

    def _start(self, place: Place) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "pdspan", place.role.value, "--node", place.role.value]
        command += ["--cluster", str(self._file_of(place.host)), "--insecure"]
        command += ["--parent-pid", str(os.getpid())]
        command += [word for override in self._overrides for word in ("--set", override)]
        with self.log_of(place.role).open("wb") as log:
            return subprocess.Popen(
                place.host.command(*command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # a terminal's Ctrl-C is for us
            )

    def _stop(self) -> None:
        """SIGTERM to all, SIGKILL to those that have not ended ``STOP_S`` later."""
        self._go_on()
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()


def _free_ports(count: int) -> list[int]:
    """Different ports, free on this machine: all are held open until all are known."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:
            held.bind(("127.0.0.1", 0))
        return [held.getsockname()[1] for held in sockets]


def _toml_lines(
    settings: Mapping[str, Any], places: Sequence[Place], addresses: Mapping[NodeRole, str]
) -> Iterator[str]:
    """Dotted keys first: what follows a table's header belongs to that table."""
    for key, value in _dotted(settings):
        yield f"{key} = {json.dumps(value, ensure_ascii=False)}"  # TOML has no surrogate pairs
    for place in places:
        role = place.role.value
        yield from ("", "[[nodes]]", f'name = "{role}"', f'role = "{role}"')
        yield f'bind = "{place.address}"'
        yield f'advertise = "{addresses[place.role]}"'


def _dotted(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every plain value of nested tables, by its dotted key."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, (*path, key))
        else:
            yield ".".join((*path, key)), value
