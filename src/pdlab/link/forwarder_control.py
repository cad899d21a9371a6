"""Talks to a link's process: one line there, one line back, over a unix socket of its own.

The lines are told in ``forwarder/main.c``; the relay understands the same ones.
"""

import json
import socket

from pdcore.errors import LinkFailed
from pdlab.link.hosts import Host
from pdlab.link.link import Counters, LinkCounters
from pdlab.link.profile import LinkProfile
from pdlab.link.state import LinkState

TIMEOUT_S = 10.0


class ForwarderControl:
    def __init__(self, state: LinkState) -> None:
        self._name = state.name
        self._socket_path = state.socket_path
        self._log_path = state.log_path

    def apply(self, profile: LinkProfile) -> None:
        self._order(profile_line(profile))

    def cut(self, seconds: float) -> None:
        self._order(f"cut {_ns(seconds)}")

    def counters(self) -> LinkCounters:
        ways = json.loads(self.say("counters"))
        return LinkCounters(Counters(**ways["a_to_b"]), Counters(**ways["b_to_a"]))

    def address_of(self, host: Host, port: int) -> str:
        return f"{host.address}:{port}"

    def limits(self) -> tuple[str, ...]:
        return ()

    def say(self, line: str) -> str:
        """The answer to ``line``. LinkFailed when there is none."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(TIMEOUT_S)
                connection.connect(str(self._socket_path))
                connection.sendall(f"{line}\n".encode())
                answer = connection.makefile().readline().strip()
        except FileNotFoundError:
            raise LinkFailed(
                f"link {self._name!r}: it is still coming up, or being taken down"
            ) from None
        except OSError as error:
            raise LinkFailed(self._obituary(str(error))) from None
        if not answer:
            raise LinkFailed(self._obituary("no answer"))
        return answer

    def _order(self, line: str) -> None:
        answer = self.say(line)
        assert answer == "ok", f"{line!r}: {answer}"

    def _obituary(self, reason: str) -> str:
        try:
            last_words = self._log_path.read_text().strip().splitlines()[-1]
        except (OSError, IndexError):
            last_words = reason
        return f"link {self._name!r}: the process that carries it has ended or hangs: {last_words}"


def profile_line(profile: LinkProfile) -> str:
    """Each way gets half of the delay and of the jitter, and the whole of everything else."""
    delay, jitter = _ns(profile.rtt_s / 2), _ns(profile.jitter_s / 2)
    rate = profile.rate_bps or 0
    return f"profile {delay} {jitter} {rate:.0f} {profile.loss:.12g} {profile.queue_room_bytes}"


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
