"""Traffic over a link under test: a stream that is checked at the other end, and single messages.

Run as a program on a host of the link (``serve``), and used as a module by the test.
"""

import hashlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pdlab.link import Host, Link

CHUNK_BYTES = 2**16


@contextmanager
def server_on(host: "Host") -> Iterator[int]:
    """A server on ``host`` while the block runs; its port."""
    command = host.command(sys.executable, "-I", "-S", __file__, "serve", host.address)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def stream(link: "Link", num_bytes: int, *, back: bool = False, timeout_s: float = 60) -> bool:
    """Send so many bytes from a to b (or back); whether they arrived as they were sent."""
    sender, receiver = (link.b, link.a) if back else (link.a, link.b)
    with server_on(receiver) as port:
        address = link.address_of(receiver, port)
        command = sender.command(
            sys.executable, "-I", "-S", __file__, "send", address, str(num_bytes)
        )
        result = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    assert result.returncode == 0, result.stderr
    sent, received = result.stdout.split()
    return sent == received


def echo(link: "Link", address: str, timeout_s: float) -> str:
    """What a message to a server at ``address`` is answered by: itself, or the error's name."""
    command = link.a.command(sys.executable, "-I", "-S", __file__, "echo", address, str(timeout_s))
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _serve(address: str) -> None:
    """Answer each connection with the digest of all that it sent."""
    with socket.create_server((address, 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                digest = hashlib.sha256()
                while data := connection.recv(CHUNK_BYTES):
                    digest.update(data)
                connection.sendall(digest.hexdigest().encode())


def _send(address: str, num_bytes: int) -> None:
    host, _, port = address.rpartition(":")
    digest = hashlib.sha256()
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for number in range(0, num_bytes, CHUNK_BYTES):
            data = hashlib.sha256(str(number).encode()).digest() * (CHUNK_BYTES // 32)
            data = data[: num_bytes - number]
            digest.update(data)
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        print(digest.hexdigest(), connection.makefile().read())


def _echo(address: str, timeout_s: float) -> None:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
            connection.shutdown(socket.SHUT_WR)
            print("answered" if connection.recv(64) else "closed")
    except OSError as error:
        print(type(error).__name__)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", address]:
            _serve(address)
        case ["send", address, num_bytes]:
            _send(address, int(num_bytes))
        case ["echo", address, timeout_s]:
            _echo(address, float(timeout_s))
