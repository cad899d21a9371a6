"""The netem link: works where the kernel has netem, and says in one line where it has not."""

import os

import pytest

from link_traffic import stream
from pdcore.errors import ConfigError
from pdlab.link import LinkProfile, open_link
from pdlab.link.namespaces import namespace_names

pytestmark = pytest.mark.netns


def test_it_carries_traffic_or_says_that_there_is_no_netem() -> None:
    try:
        with open_link("netem", LinkProfile(rtt_s=0.02, rate_bps=1e8, loss=0.001)) as link:
            assert stream(link, 2**20)
            assert link.measure().rtt_min_s >= 0.02
    except ConfigError as error:
        assert str(error).startswith("this kernel has no netem (")
        assert str(error).endswith("); the tun link needs none")
    assert not [name for name in namespace_names() if name.startswith(f"pdlab-{os.getpid()}-")]
