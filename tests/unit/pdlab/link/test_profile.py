"""What a link may be asked to be, and how that is said to forwarder and kernel."""

from typing import Any

import pytest

from pdcore.errors import ConfigError
from pdlab.link import LinkProfile, TcpSettings, open_link
from pdlab.link.forwarder_control import profile_line
from pdlab.link.netem import netem_words

MIB = 2**20


@pytest.mark.parametrize(
    ("fields", "queue_bytes"),
    [
        ({}, MIB),
        ({"rtt_s": 0.001, "rate_bps": 1e9}, MIB),
        ({"rtt_s": 0.05, "rate_bps": 1e9}, 12_500_000),
        ({"rtt_s": 0.05, "rate_bps": 1e9, "queue_bytes": 5000}, 5000),
    ],
)
def test_queue_is_two_bdp_or_a_mebibyte(fields: dict[str, Any], queue_bytes: int) -> None:
    assert LinkProfile(**fields).queue_room_bytes == queue_bytes


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"rtt_s": -0.1}, "rtt -0.1 s"),
        ({"rtt_s": 11.0}, "rtt 11 s: it must be from 0 to 10"),
        ({"rtt_s": float("nan")}, "rtt nan"),
        ({"rate_bps": 0.0}, "rate 0 bit/s"),
        ({"loss": 1.5}, "loss 1.5"),
        ({"jitter_s": -1.0}, "jitter -1 s"),
        ({"queue_bytes": 100}, "queue 100 bytes: it must be from 1500 to 1"),
        ({"rtt_s": 1.0, "rate_bps": 1e10}, "3.492 GiB on its way"),
    ],
)
def test_impossible_links_are_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        LinkProfile(**fields)


@pytest.mark.parametrize(
    ("share", "said"), [(1.0, "loss 100%"), (0.0001, "loss 0.01%"), (0.125, "loss 12.5%")]
)
def test_loss_is_said_in_percent(share: float, said: str) -> None:
    assert str(LinkProfile(loss=share)).split(", ")[2] == said


def test_unknown_buffers_are_refused() -> None:
    with pytest.raises(ConfigError, match="no TCP buffers 'huge'; there are: large, stock"):
        TcpSettings(buffers="huge")


def test_each_way_gets_half_of_the_delay_and_of_the_jitter() -> None:
    profile = LinkProfile(rtt_s=0.05, rate_bps=1e9, loss=0.0001, jitter_s=0.002, queue_bytes=30_000)
    assert profile_line(profile) == "profile 25000000 1000000 1000000000 0.0001 30000"
    assert profile_line(LinkProfile()) == f"profile 0 0 0 0 {MIB}"


def test_netem_gets_the_same_range_of_delays_and_room_for_what_flies() -> None:
    profile = LinkProfile(rtt_s=0.05, rate_bps=1e9, loss=0.0001, jitter_s=0.002, queue_bytes=30_000)
    words = "netem limit 2103 delay 25500us 500us loss 0.010000% rate 1000000000bit"
    assert netem_words(profile) == words.split()


def test_without_a_rate_netem_never_drops_for_lack_of_room() -> None:
    """No packet waits for a line: all that its limit counts is on its way."""
    limit = int(netem_words(LinkProfile(rtt_s=0.2))[2])
    assert limit * 1500 > 1e9


@pytest.mark.parametrize("kind", ["loopback", "relay"])
@pytest.mark.parametrize("tcp", [TcpSettings(congestion="cubic"), TcpSettings(buffers="stock")])
def test_a_link_without_hosts_of_its_own_cannot_set_their_tcp(kind: str, tcp: TcpSettings) -> None:
    """Else a record would state settings that were never in force."""
    with (
        pytest.raises(ConfigError, match=f"a {kind} link has the machine's own TCP settings"),
        open_link(kind, LinkProfile(), tcp),
    ):
        pass
