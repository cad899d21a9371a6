"""Hosts on one machine: network namespaces joined by a cable, and node processes in them.

Namespaces carry the test run's process id in their names. Leaving ``two_hosts`` ends what runs in
them and removes them; what a killed run left behind is removed by the next. No other namespace, and
nothing outside them, is ever touched.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX = "pdspan-test-"
LINK = "eth0"


@dataclass(frozen=True, slots=True)
class Host:
    """A namespace with a loopback and one end of the cable."""

    namespace: str

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run ``command`` on this host; its exit status is the caller's to judge."""
        return subprocess.run(
            self.command(*command), capture_output=True, text=True, timeout=60, check=False
        )

    def command(self, *command: str | Path) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *map(str, command)]

    @property
    def sent_bytes(self) -> int:
        """What has left over the cable since it was laid."""
        (link,) = json.loads(_ip("-n", self.namespace, "-s", "-j", "link", "show", LINK))
        return int(link["stats64"]["tx"]["bytes"])


@contextmanager
def two_hosts(address_a: str, address_b: str) -> Iterator[tuple[Host, Host]]:
    """Two hosts that reach each other, and nothing else, under these addresses."""
    clear_leftovers()
    hosts = Host(f"{PREFIX}{os.getpid()}-a"), Host(f"{PREFIX}{os.getpid()}-b")
    try:
        for host in hosts:
            _ip("netns", "add", host.namespace)
            _ip("-n", host.namespace, "link", "set", "lo", "up")
        a, b = (host.namespace for host in hosts)
        _ip("-n", a, "link", "add", LINK, "type", "veth", "peer", "name", LINK, "netns", b)
        for namespace, address in ((a, address_a), (b, address_b)):
            _ip("-n", namespace, "address", "add", f"{address}/24", "dev", LINK)
            _ip("-n", namespace, "link", "set", LINK, "up")
        yield hosts
    finally:
        for namespace in _namespaces() & {host.namespace for host in hosts}:
            _remove(namespace)


def clear_leftovers() -> None:
    """Remove namespaces of test runs that are no more."""
    for namespace in _namespaces():
        pid = namespace.removeprefix(PREFIX).partition("-")[0]
        if namespace.startswith(PREFIX) and not Path(f"/proc/{pid}").exists():
            _remove(namespace)


class NodeProcess:
    """``pdspan ROLE`` on a host, until the block is left. Its log can be waited on."""

    def __init__(self, host: Host, role: str, name: str, *options: str | Path) -> None:
        pdspan = (sys.executable, "-m", "pdspan", role, "--node", name)
        self._command = host.command(*pdspan, *options, "--parent-pid", str(os.getpid()))
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._seen: list[str] = []

    def __enter__(self) -> "NodeProcess":
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_for(self, text: str, timeout_s: float = 60) -> dict[str, Any]:
        """The first log line that contains ``text``, written already or still to come.

        AssertionError, with the log, when there is none.
        """
        try:
            while not (found := [line for line in self._seen if text in line]):
                line = self._lines.get(timeout=timeout_s)
                assert line is not None, f"ended before {text!r}:\n{''.join(self._seen)}"
                self._seen.append(line)
        except queue.Empty:
            raise AssertionError(f"no {text!r} in the log:\n{''.join(self._seen)}") from None
        return dict(json.loads(found[0]))

    def kill(self) -> None:
        """SIGKILL: it gets no chance to say anything."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM, then wait; SIGKILL when that takes too long. The exit status."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reader.join()
        return self._process.wait()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)


def _namespaces() -> set[str]:
    return {entry["name"] for entry in json.loads(_ip("-j", "netns", "list") or "[]")}


def _remove(namespace: str) -> None:
    for pid in _ip("netns", "pids", namespace).split():
        os.kill(int(pid), signal.SIGKILL)
    _ip("netns", "delete", namespace)


def _ip(*arguments: str) -> str:
    command: Sequence[str] = ["ip", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}"
    return result.stdout
