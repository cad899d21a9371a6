"""The two ends of a measurement, run as a program of its own; the standard library alone.

    serve ADDRESS WARM_S MEASURED_S   prints its port, answers pings, then lets flows run for WARM_S
                                      and prints how many bytes came in each tenth of MEASURED_S
    call ADDRESS:PORT NUM_PINGS NUM_FLOWS ANSWER_S   prints the round trips in seconds, then fills
                                                     the link until the server hangs up

The exit status of ``call`` is 1 when an answer takes longer than ANSWER_S, which it says on stderr.

A connection says with its first byte what it is: a ping connection or a flow.
"""

import json
import selectors
import socket
import sys
import time

PING, FLOW = b"p", b"f"
NUM_UNCOUNTED_PINGS = 3
NUM_SLICES = 10
CHUNK_BYTES = 2**18
LONELY_S = 30.0  # whoever started this may have been killed


def serve(address: str, warm_s: float, measured_s: float) -> None:
    """Ends by itself once it has counted, or when nobody has called within ``LONELY_S``."""
    listener = socket.create_server((address, 0), backlog=64)
    listener.settimeout(LONELY_S)
    print(listener.getsockname()[1], flush=True)
    first_flow = _answer_pings(listener)
    print(json.dumps(_count(listener, first_flow, warm_s, measured_s)), flush=True)


def call(address: str, num_pings: int, num_flows: int, answer_s: float) -> None:
    host, _, port = address.rpartition(":")
    server = host, int(port)
    try:
        with _connect(server, PING, answer_s) as connection:
            round_trips_s = [
                _round_trip_s(connection) for _ in range(NUM_UNCOUNTED_PINGS + num_pings)
            ]
        print(*round_trips_s[NUM_UNCOUNTED_PINGS:], flush=True)
        flows = [_connect(server, FLOW, answer_s) for _ in range(num_flows)]
    except TimeoutError:
        sys.exit(f"nothing came through within {answer_s:g} s")
    _fill(flows)


def _answer_pings(listener: socket.socket) -> socket.socket:
    """Until a connection comes that is a flow: this."""
    while True:
        connection, _ = listener.accept()
        connection.settimeout(LONELY_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if connection.recv(1) == FLOW:
            return connection
        while data := connection.recv(64):
            connection.sendall(data)
        connection.close()


def _count(
    listener: socket.socket, first: socket.socket, warm_s: float, measured_s: float
) -> list[int]:
    """Bytes received in each of ``NUM_SLICES`` equal parts of ``measured_s``, after ``warm_s``."""
    buffer = bytearray(CHUNK_BYTES)
    counts = [0] * NUM_SLICES
    counted_from_s = time.monotonic() + warm_s
    with selectors.DefaultSelector() as selector:
        for connection in (listener, first):
            selector.register(connection, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(measured_s / NUM_SLICES):
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                received = 0
                if ready is listener:
                    selector.register(listener.accept()[0], selectors.EVENT_READ)
                elif not (received := ready.recv_into(buffer)):
                    selector.unregister(ready)
                number = int((time.monotonic() - counted_from_s) // (measured_s / NUM_SLICES))
                if number >= NUM_SLICES:
                    return counts
                if number >= 0:
                    counts[number] += received
            if time.monotonic() > counted_from_s + measured_s:
                return counts


def _connect(server: tuple[str, int], kind: bytes, answer_s: float) -> socket.socket:
    connection = socket.create_connection(server, timeout=answer_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(kind)
    return connection


def _round_trip_s(connection: socket.socket) -> float:
    sent_s = time.perf_counter()
    connection.sendall(b"?")
    if not connection.recv(1):
        raise ConnectionError("the other end hung up")
    return time.perf_counter() - sent_s


def _fill(connections: list[socket.socket]) -> None:
    chunk = bytes(CHUNK_BYTES)
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_WRITE)
        while True:
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                try:
                    key.fileobj.send(chunk)
                except BlockingIOError:
                    continue
                except ConnectionError:
                    return  # the server has counted enough


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", address, warm_s, measured_s]:
            serve(address, float(warm_s), float(measured_s))
        case ["call", address, num_pings, num_flows, answer_s]:
            call(address, int(num_pings), int(num_flows), float(answer_s))
        case _:
            sys.exit(__doc__)
