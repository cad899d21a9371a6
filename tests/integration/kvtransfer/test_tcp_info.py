"""What the kernel says of real connections."""

import asyncio
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kvtransfer.kernel_tcp import max_receive_buffer_bytes, max_send_buffer_bytes
from kvtransfer.path import PathEstimator
from kvtransfer.path_watch import tcp_samples
from kvtransfer.tcp_info import TcpConnections, numeric
from waiting import until
from wired_pair import LAYOUT, NUM_PAGES, transfer, wired

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is Linux's")


@contextmanager
def connected(
    host: str = "127.0.0.1", family: int = socket.AF_INET
) -> Iterator[list[socket.socket]]:
    """[this end, the other end], both in this process."""
    with socket.create_server((host, 0), family=family) as server:
        here = socket.create_connection(server.getsockname()[:2])
        there, _ = server.accept()
        with here, there:
            yield [here, there]


def found(port: int, host: str = "127.0.0.1") -> TcpConnections:
    connections = TcpConnections()
    connections.find(frozenset({(host, port)}))
    return connections


def test_bytes_are_counted_and_the_rest_is_plausible() -> None:
    with connected() as (here, there):
        connections = found(here.getpeername()[1])
        (before,) = connections.samples()
        here.sendall(bytes(100_000))
        received = 0
        while received < 100_000:
            received += len(there.recv(2**16))
        (after,) = connections.samples()
    assert after.bytes_acked - before.bytes_acked == 100_000
    assert after.notsent_bytes == after.bytes_retransmitted == 0
    assert 0 < after.min_rtt_s <= after.rtt_s < 1
    assert after.busy_s >= before.busy_s >= 0


def test_a_reader_that_stopped_is_seen_as_a_full_window() -> None:
    with connected() as (here, _there):
        connections = found(here.getpeername()[1])
        here.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                here.send(bytes(2**20))
        (sample,) = connections.samples()
        assert sample.notsent_bytes > 0


def test_only_connections_to_that_address_are_found() -> None:
    with connected() as (here, there), connected():
        assert len(found(here.getpeername()[1])) == 1
        assert len(found(there.getpeername()[1])) == 1
        assert len(found(1)) == 0


def test_ipv4_that_is_mapped_into_ipv6_is_found() -> None:
    assert numeric("::ffff:10.0.0.1") == "10.0.0.1"
    assert numeric("fe80::1%eth0") == numeric("fe80:0:0::1")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as here,
    ):
        try:
            here.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
        except OSError:
            pytest.skip("no IPv6 here")
        assert len(found(server.getsockname()[1])) == 1


def test_the_order_lasts_and_new_ones_come_last() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        first, second = (socket.create_connection(address) for _ in range(2))
        connections = found(address[1])
        num_changes = connections.num_changes
        first.sendall(b"1")
        second.sendall(b"22")
        with socket.create_connection(address) as third:
            connections.find(frozenset({("127.0.0.1", address[1])}))
            third.sendall(b"333")
            asked = [sample.bytes_acked for sample in connections.samples()]
            assert asked == sorted(asked)
            first.close()
            assert len(connections.samples()) == 2
            assert connections.num_changes == num_changes + 2
        second.close()


def test_a_number_that_another_file_has_now_is_not_mistaken() -> None:
    with connected() as (here, _there), connected() as (other, _):
        connections = found(here.getpeername()[1])
        os.dup2(other.fileno(), here.fileno())
        assert connections.samples() == ()
        assert len(connections) == 0


def test_a_number_that_no_socket_has_now_is_let_go() -> None:
    reading, writing = os.pipe()
    with connected() as (here, _there), os.fdopen(reading, "rb") as end:
        connections = found(here.getpeername()[1])
        os.set_blocking(reading, False)
        os.dup2(writing, here.fileno())
        os.close(writing)
        assert connections.samples() == ()
        here.close()
        assert end.read() == b""  # nobody holds the other end of the pipe


def test_looking_keeps_no_connection_open() -> None:
    with connected() as (here, there):
        connections = found(here.getpeername()[1])
        connections.samples()
        here.close()
        assert there.recv(1) == b""


def test_buffers_are_the_kernels_own() -> None:
    for name, ours in (
        ("tcp_wmem", max_send_buffer_bytes()),
        ("tcp_rmem", max_receive_buffer_bytes()),
    ):
        with open(f"/proc/sys/net/ipv4/{name}") as file:  # noqa: PTH123
            assert ours == int(file.read().split()[2])


async def test_the_connections_of_a_pair_are_seen() -> None:
    async with wired() as wire:
        await transfer(wire, "t")
        busy = asyncio.Event()
        busy.set()
        path = PathEstimator()
        views = tcp_samples(wire.pair.address, [None] * 3, busy, path)
        assert await anext(views) == ()
        samples = await anext(views)
        await views.aclose()
    assert len(samples) == 4  # three stripes, and the one for Attach and pings
    carried = sum(sample.bytes_acked for sample in samples)
    assert carried > NUM_PAGES * LAYOUT.page_bytes


@pytest.mark.parametrize("address", ["dns:///decode-0:7001", "decode-0", f"{'x' * 64}:7001"])
async def test_an_address_that_only_grpc_can_read_has_no_samples(address: str) -> None:
    busy = asyncio.Event()
    busy.set()
    views = tcp_samples(address, [None], busy, PathEstimator())
    assert await anext(views) == ()
    await views.aclose()


async def test_nothing_is_looked_at_while_nothing_runs() -> None:
    async with wired() as wire:
        view = asyncio.create_task(
            anext(tcp_samples(wire.pair.address, [None], asyncio.Event(), PathEstimator()))
        )
        await until(lambda: wire.pair.path.rtt_s is not None)
        assert not view.done()
        view.cancel()
