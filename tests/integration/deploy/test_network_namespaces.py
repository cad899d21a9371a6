"""The hosts that the deployment tests run on leave nothing behind."""

import subprocess
import sys

import pytest

from network_namespaces import PREFIX, clear_leftovers, two_hosts

pytestmark = pytest.mark.netns


def namespaces() -> str:
    return subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout


def test_hosts_reach_each_other_and_are_gone_afterwards() -> None:
    with two_hosts("192.0.2.1", "192.0.2.2") as (a, b):
        listen = "import socket; s = socket.create_server(('192.0.2.2', 7000)); print(flush=True)"
        accept = f"{listen}; s.accept()"
        command = b.command(sys.executable, "-c", accept)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            server.stdout.readline()
            connect = "import socket; socket.create_connection(('192.0.2.2', 7000), 9)"
            assert a.run(sys.executable, "-c", connect).returncode == 0
        assert server.returncode == 0
        assert a.sent_bytes > 0
    assert a.namespace not in namespaces()
    assert b.namespace not in namespaces()


def test_what_a_killed_run_left_is_cleared() -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    namespace = f"{PREFIX}{dead.pid}-a"
    subprocess.run(["ip", "netns", "add", namespace], check=True)
    left_running = subprocess.Popen(["ip", "netns", "exec", namespace, "sleep", "300"])
    clear_leftovers()
    assert namespace not in namespaces()
    assert left_running.wait(10) == -9
