"""The TUN link under real TCP: delay, loss, tail drop, changes, cuts, and nothing left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from link_traffic import echo, server_on, stream
from pdcore.errors import ConfigError
from pdlab.link import LinkProfile, TcpSettings, open_link
from pdlab.link.namespaces import namespace_names, read_sysctl
from pdlab.link.state import known_links, state_dir
from waiting import wait_until

pytestmark = pytest.mark.tun

MIB = 2**20


def ours() -> set[str]:
    return {name for name in namespace_names() if name.startswith(f"pdlab-{os.getpid()}-")}


def test_round_trips_take_what_was_asked_for() -> None:
    with open_link("tun", LinkProfile(rtt_s=0.02, rate_bps=1e9)) as link:
        measured = link.measure()
    assert 0.02 <= measured.rtt_min_s < 0.12
    assert measured.rtt_min_s <= measured.rtt_median_s
    assert 0 < measured.rate_bps < 0.98e9
    assert (measured.kind, measured.profile) == ("tun", link.profile)


def test_a_line_of_few_packets_per_second_has_a_rate() -> None:
    """A packet takes 0.24 s: most of the short spans in which bytes are counted have none."""
    with open_link("tun", LinkProfile(rate_bps=5e4)) as link:
        assert 0 < link.measure().rate_bps < 1e5


def test_streams_arrive_intact_over_loss_and_a_short_queue_both_ways() -> None:
    """Super-packets lose segments in the middle and at the tail; TCP repairs what is left."""
    profile = LinkProfile(rtt_s=0.002, rate_bps=1e9, loss=0.01, jitter_s=0.001, queue_bytes=40_000)
    with open_link("tun", profile) as link:
        assert stream(link, 16 * MIB)
        assert stream(link, 4 * MIB, back=True)
        counters = link.counters()
    assert counters is not None
    assert counters.a_to_b.lost > 0 and counters.b_to_a.lost > 0
    assert counters.a_to_b.dropped > 0
    assert counters.a_to_b.refused == counters.b_to_a.refused == 0
    assert counters.a_to_b.bytes > 16 * MIB


def test_a_change_holds_from_now_on() -> None:
    with open_link("tun", LinkProfile()) as link:
        fast = link.measure()
        link.change(LinkProfile(rtt_s=0.05, rate_bps=1e8))
        slow = link.measure()
        assert link.profile.rate_bps == 1e8
    assert fast.rtt_min_s < 0.05 <= slow.rtt_min_s
    assert slow.rate_bps < 0.98e8 < fast.rate_bps


def test_a_cut_link_carries_nothing_and_heals() -> None:
    with open_link("tun", LinkProfile()) as link, server_on(link.b) as port:
        address = link.address_of(link.b, port)
        assert echo(link, address, timeout_s=20) == "answered"
        link.cut(3600)
        assert echo(link, address, timeout_s=0.3) == "TimeoutError"
        counters = link.counters()
        assert counters is not None and counters.a_to_b.cut > 0
        link.cut(0)
        assert echo(link, address, timeout_s=20) == "answered"


def test_tcp_is_set_inside_the_hosts_and_nowhere_else() -> None:
    before = Path("/proc/sys/net/ipv4/tcp_wmem").read_text()
    tcp = TcpSettings(buffers="stock", congestion="reno", slow_start_after_idle=False)
    with open_link("tun", LinkProfile(), tcp) as link:
        for host in (link.a, link.b):
            assert host.namespace is not None
            values = {
                key: read_sysctl(host.namespace, f"net.ipv4.tcp_{key}").split()
                for key in (
                    "wmem",
                    "congestion_control",
                    "slow_start_after_idle",
                    "no_metrics_save",
                )
            }
            assert values == {
                "wmem": ["4096", "16384", "4194304"],
                "congestion_control": ["reno"],
                "slow_start_after_idle": ["0"],
                "no_metrics_save": ["1"],
            }
    assert Path("/proc/sys/net/ipv4/tcp_wmem").read_text() == before


def test_an_error_in_the_block_takes_the_link_down_with_what_runs_on_it() -> None:
    with pytest.raises(RuntimeError), open_link("tun", LinkProfile()) as link:
        process = subprocess.Popen(link.b.command("sleep", "600"))
        assert len(ours()) == 2
        raise RuntimeError
    assert process.wait(10) == -signal.SIGKILL
    assert not ours()
    assert str(os.getpid()) not in " ".join(path.name for path in state_dir().iterdir())


def test_a_link_that_cannot_come_up_leaves_nothing() -> None:
    with (
        pytest.raises(ConfigError, match=r"no congestion control 'nonesuch'; it has: .*reno"),
        open_link("tun", LinkProfile(), TcpSettings(congestion="nonesuch")),
    ):
        pass
    assert not ours()


OPEN_AND_WAIT = """
import subprocess, sys, time
from pdlab.link import LinkProfile, open_link
with open_link("tun", LinkProfile()) as link:
    child = subprocess.Popen(link.a.command("sleep", "600"))
    print(link.a.namespace, child.pid, flush=True)
    time.sleep(600)
"""


def start_and_wait() -> tuple["subprocess.Popen[str]", str, int]:
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN_AND_WAIT], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    namespace, child_pid = process.stdout.readline().split()
    return process, namespace, int(child_pid)


def test_ctrl_c_takes_the_link_down() -> None:
    process, namespace, child_pid = start_and_wait()
    assert namespace in namespace_names()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) != 0
    assert namespace not in namespace_names()
    wait_until(lambda: not Path(f"/proc/{child_pid}").exists())


def test_what_a_killed_run_left_behind_is_cleared_by_the_next() -> None:
    process, namespace, child_pid = start_and_wait()
    (state,) = [state for state in known_links() if namespace in state.namespaces]
    assert state.forwarder is not None and state.forwarder.alive
    process.kill()
    process.wait()
    wait_until(lambda: not state.forwarder.alive)  # it ends by itself
    assert namespace in namespace_names()
    with open_link("tun", LinkProfile()):
        assert namespace not in namespace_names()
        assert state.name not in {state.name for state in known_links()}
    wait_until(lambda: not Path(f"/proc/{child_pid}").exists())


def test_links_live_side_by_side() -> None:
    with open_link("tun", LinkProfile()) as first, open_link("tun", LinkProfile()) as second:
        assert stream(first, MIB) and stream(second, MIB)
    assert not ours()
