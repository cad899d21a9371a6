"""One end of the link under NIXL over UCX/TCP, in an environment that has nixl-cu12 and no gRPC.

    python -m pdlab.transfer.nixl_end sender --pool-bytes N

Speaks the same lines as the other ends, one request after the other. The sender writes the
scattered pages of a move into the receiver's pool by one transfer request, with a notification at
its end. NIXL's progress thread is off: on the two cores of both ends polling from this thread is
faster, and nothing spins while other arms are measured.
"""

import fcntl
import os
import select
import socket
import struct
import sys
from argparse import ArgumentParser
from time import perf_counter
from typing import Any, TextIO

from pdcore.errors import NotOurs, PdspanError, PeerUnavailable
from pdlab.transfer.messages import (
    ArmOpened,
    CloseArm,
    Collect,
    Collected,
    Expected,
    Expecting,
    Failed,
    Hello,
    Message,
    Move,
    Number,
    Numbered,
    OpenArm,
    Peer,
    Sent,
    Started,
    from_line,
    to_line,
)
from pdlab.transfer.pool import Extent, Pool, joint_digest, num_wrong, page_table
from pdlab.transfer.usage import cpu_s, peak_rss_bytes, reset_peak_rss, rss_bytes

SENDER_SEED, RECEIVER_SEED = 1, 2
SENDER, RECEIVER = "sender", "receiver"
POLLS_BETWEEN_LOOKS = 1000
NOTIFICATION_S = 10.0  # after the sender was told that its transfer is done
_SIOCGIFADDR = 0x8915  # netdevice(7)


class NixlEnd:
    """Both ends; an agent is made when the arm opens, since it must know its interface."""

    def __init__(self, role: str, pool: Pool) -> None:
        self._role = role
        self._pool = pool
        self._digests = ""
        self._agent: Any = None
        self._peer_address = 0  # of the receiver's pool
        self._expected: Move | None = None
        self._cpu_before_s = 0.0
        self._has_arrived = False

    def answer(self, request: Message) -> Message:
        match request:
            case Hello():
                return Started(rss_bytes())
            case Number():
                self._pool.number(request.page_bytes)
                digests = self._pool.digests(Extent(0, request.num_digests))
                return Numbered(len(self._pool.page_table), digests)
            case OpenArm():
                return ArmOpened(self._open(request))
            case CloseArm():
                self._agent = None
                return ArmOpened()
            case _ if self._role == SENDER and isinstance(request, Move):
                return self._send(request)
            case _ if self._role == RECEIVER:
                return self._receiving(request)
            case _:
                raise NotOurs(f"NIXL's {self._role} does not understand {type(request).__name__}")

    def progress(self) -> None:
        """The receiver's part while pages arrive: to be called again and again."""
        if self._agent.check_remote_xfer_done(SENDER, _tag(self._expected)):
            self._has_arrived = True

    @property
    def is_waiting(self) -> bool:
        return self._expected is not None and not self._has_arrived

    def _open(self, request: OpenArm) -> Peer:
        self._agent = new_agent(self._role, request.host)
        self._agent.register_memory([(self._pool.address, self._pool.num_bytes, 0, "")], "DRAM")
        if self._role == SENDER:
            metadata, _, address = request.peer.blob.partition(" ")
            self._agent.add_remote_agent(bytes.fromhex(metadata))
            self._peer_address = int(address)
        return Peer(blob=f"{self._agent.get_agent_metadata().hex()} {self._pool.address}")

    def _send(self, move: Move) -> Sent:
        here = self._descriptors(move, self._pool.page_table, self._pool.address)
        size = self._pool.layout.page_bytes
        table = page_table(RECEIVER_SEED, self._pool.num_bytes, size)
        there = self._descriptors(move, table, self._peer_address)
        reset_peak_rss()
        cpu_before_s, before_s = cpu_s(), perf_counter()
        handle = self._agent.initialize_xfer("WRITE", here, there, RECEIVER, _tag(move))
        state = self._agent.transfer(handle)
        while state == "PROC":
            state = self._agent.check_xfer_state(handle)
        duration_s = perf_counter() - before_s
        self._agent.release_xfer_handle(handle)
        if state != "DONE":
            raise PeerUnavailable(f"NIXL's transfer ended with {state}")
        return Sent(duration_s, cpu_s() - cpu_before_s, peak_rss_bytes())

    def _descriptors(self, move: Move, table: list[int], address: int) -> Any:
        size = self._pool.layout.page_bytes
        pages = table[move.first_page : move.first_page + move.num_pages]
        return self._agent.get_xfer_descs([(address + p * size, size, 0) for p in pages], "DRAM")

    def _receiving(self, request: Message) -> Message:
        match request:
            case Expected():
                self._digests = request.digests
                return Expecting()
            case Move():
                self._pool.wipe(Extent(request.first_page, request.num_pages))
                self._expected, self._has_arrived = request, False
                reset_peak_rss()
                self._cpu_before_s = cpu_s()
                return Expecting()
            case Collect():
                return self._collect()
            case _:
                raise NotOurs(f"NIXL's receiver does not understand {type(request).__name__}")

    def _collect(self) -> Collected:
        give_up_s = perf_counter() + NOTIFICATION_S
        while self.is_waiting and perf_counter() < give_up_s:
            self.progress()
        move, self._expected = self._expected, None
        if move is None or not self._has_arrived:
            raise PeerUnavailable(f"no notification of NIXL's in {NOTIFICATION_S:g} s")
        used_s, peak_bytes = cpu_s() - self._cpu_before_s, peak_rss_bytes()
        digests = self._pool.digests(Extent(move.first_page, move.num_pages))
        wrong = num_wrong(digests, self._digests, move.first_page)
        return Collected(used_s, peak_bytes, wrong, joint_digest(digests))


def new_agent(role: str, host: str) -> Any:
    """UCX reads its environment when NIXL is loaded, so that happens here."""
    os.environ["UCX_TLS"] = "tcp"
    os.environ["UCX_NET_DEVICES"] = interface_of(host)
    from nixl_cu12 import nixl_agent, nixl_agent_config  # type: ignore[import-not-found]  # noqa: PLC0415

    return nixl_agent(role, nixl_agent_config(enable_prog_thread=False))


def interface_of(host: str) -> str:
    """The interface that has this IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            try:
                reply = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # an interface without an IPv4 address
            if socket.inet_ntoa(reply[20:24]) == host:
                return name
    raise PeerUnavailable(f"no interface has the address {host}")


def _tag(move: Move | None) -> bytes:
    assert move is not None, "only asked while a move is expected"
    return f"{move.name};".encode()  # not a prefix of another name's


def _serve(end: NixlEnd, answers: TextIO) -> None:
    """Answer line by line; while pages arrive, progress goes on until they are there.

    A line that comes meanwhile is looked for now and then: the sender may have failed.
    """
    while True:
        polls = 0
        while end.is_waiting:
            end.progress()
            polls += 1
            if polls % POLLS_BETWEEN_LOOKS == 0 and select.select([sys.stdin], [], [], 0)[0]:
                break
        line = sys.stdin.readline()
        if not line:
            return
        request_id, request = from_line(line)
        answers.write(to_line(request_id, _answer(end, request)))
        answers.flush()


def _answer(end: NixlEnd, request: Message) -> Message:
    try:
        return end.answer(request)
    except PdspanError as error:
        return Failed(type(error).__name__, error.message)
    except Exception as error:  # NIXL raises errors of its own
        return Failed("PeerUnavailable", f"{type(error).__name__}: {error}")


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("role", choices=(SENDER, RECEIVER))
    parser.add_argument("--pool-bytes", type=int, required=True)
    arguments = parser.parse_args()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # NIXL and UCX log to standard output
    is_sender = arguments.role == SENDER
    pool = Pool(arguments.pool_bytes, SENDER_SEED if is_sender else RECEIVER_SEED)
    if is_sender:
        pool.fill()
    _serve(NixlEnd(arguments.role, pool), answers)


if __name__ == "__main__":
    main()
