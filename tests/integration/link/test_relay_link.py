"""The relay: connections on loopback, late, at a rate, with a bound on what is on its way."""

import os
import time
from pathlib import Path

import pytest

from link_traffic import echo, server_on, stream
from pdcore.errors import ConfigError
from pdlab.link import LinkProfile, known_links, open_link
from pdspan.main import main

MIB = 2**20


def test_streams_arrive_intact_and_late() -> None:
    with open_link("relay", LinkProfile(rtt_s=0.04, rate_bps=1e9)) as link:
        assert stream(link, 4 * MIB)
        assert stream(link, 2 * MIB, back=True)
        measured = link.measure()
    assert 0.04 <= measured.rtt_min_s < 0.3
    assert measured.rate_bps < 1.05e9
    assert any("bytes in flight" in limit or "in flight" in limit for limit in measured.limits)


def test_no_more_than_the_bound_is_on_its_way() -> None:
    """With W bytes in flight at most, and a read beyond, M bytes need M / W one-way delays."""
    profile = LinkProfile(rtt_s=0.2, queue_bytes=64 * 1024)
    with open_link("relay", profile) as link:
        started_s = time.monotonic()
        assert stream(link, MIB)
        took_s = time.monotonic() - started_s
    assert took_s >= MIB / (2 * 64 * 1024) * 0.1


def test_a_cut_holds_bytes_up_and_loses_none() -> None:
    with open_link("relay", LinkProfile()) as link, server_on(link.b) as port:
        address = link.address_of(link.b, port)
        assert echo(link, address, timeout_s=20) == "answered"
        link.cut(3600)
        assert echo(link, address, timeout_s=0.3) == "TimeoutError"
        link.cut(0)
        assert echo(link, address, timeout_s=20) == "answered"


def test_nobody_at_the_port_is_a_connection_that_ends() -> None:
    with open_link("relay", LinkProfile()) as link:
        with server_on(link.b) as port:
            pass
        answer = echo(link, link.address_of(link.b, port), timeout_s=20)
    assert answer in ("closed", "ConnectionResetError")


def test_a_port_keeps_its_address_and_each_host_has_its_own() -> None:
    with open_link("relay", LinkProfile()) as link:
        assert link.address_of(link.b, 5000) == link.address_of(link.b, 5000)
        assert link.address_of(link.b, 5000) != link.address_of(link.a, 5000)


def test_a_relay_cannot_lose_packets() -> None:
    with (
        pytest.raises(ConfigError, match="a relay cannot lose packets"),
        open_link("relay", LinkProfile(loss=0.1)),
    ):
        pass


def test_what_is_no_program_is_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_link("relay", LinkProfile()):
        (name,) = (s.name for s in known_links() if s.name.startswith(f"{os.getpid()}-"))
        assert main(["link", "exec", "--name", name, "a", "--", str(tmp_path)]) == 2
        assert capsys.readouterr().err.endswith(f"link exec: {tmp_path}: Permission denied\n")
        assert main(["link", "exec", "--name", name, "a", "--", "no-such-program"]) == 2
        assert "link exec: no-such-program: No such file" in capsys.readouterr().err


def test_loopback_is_as_it_is() -> None:
    with open_link("loopback", LinkProfile()) as link:
        assert stream(link, MIB)
        assert link.measure().limits
    with (
        pytest.raises(ConfigError, match="loopback is as it is"),
        open_link("loopback", LinkProfile(rtt_s=0.1)),
    ):
        pass
