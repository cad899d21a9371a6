"""Drives the client process (``pdlab.client``) on a host: an order in, its answers out."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Self

from pdcore.errors import PeerUnavailable
from pdlab.client import Answer, Call, Order
from pdlab.link import Host


class ClientProcess:
    """One at a time uses it: an order is answered before the next is given."""

    def __init__(self, host: Host) -> None:
        self._process = subprocess.Popen(
            host.command(sys.executable, "-m", "pdlab.client"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # a terminal's Ctrl-C is for us; it ends with its input
        )

    def wait_until_ready(self, url: str, within_s: float) -> bool:
        """Whether the router at ``url`` can serve within the time."""
        return self._give(Order(url, within_s, ready_s=within_s))[1]

    def call(self, url: str, calls: Sequence[Call], timeout_s: float) -> list[Answer]:
        """Make all calls; an answer each, in their order."""
        return self._give(Order(url, timeout_s, tuple(calls)))[0]

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _give(self, order: Order) -> tuple[list[Answer], bool]:
        assert self._process.stdin is not None and self._process.stdout is not None
        answers: list[Answer] = []
        try:
            self._process.stdin.write(json.dumps(asdict(order)) + "\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                said = json.loads(line)
                if "done" in said:
                    return answers, said["done"]
                answers.append(Answer(**said["answer"]))
        except BrokenPipeError:
            pass
        raise PeerUnavailable("the laboratory's client ended; what it said is above")
