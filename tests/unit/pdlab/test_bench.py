"""Links, clusters and clients come up in an order that lets each link be measured undisturbed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pdlab import bench
from pdlab.link import Link, LinkProfile, MeasuredLink, TcpSettings
from pdlab.link.loopback import LoopbackControl, this_machine
from pdlab.scenario import serving_scenario

PLAN = serving_scenario(
    {
        "name": "order",
        "about": "For a test.",
        "workload": {"kind": "fixed", "prompt_tokens": 8, "output_tokens": 2},
        "arms": [{"name": "a"}, {"name": "b"}, {"name": "c", "settings": {"engine.threads": 2}}],
        "links": [{"rtt": "0ms"}, {"rtt": "50ms"}],
        "interleave_links": True,
    },
    "order.toml",
)


class FakeLink(Link):
    def measure(self) -> MeasuredLink:
        EVENTS.append("measured")
        return MeasuredLink("tun", self.profile, self.tcp, 0.0, 0.0, 1e9, 4, 1, 15, 1, ())


class FakeProcess:
    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> "FakeProcess":
        EVENTS.append("started")
        return self

    def __exit__(self, *_: object) -> None:
        EVENTS.append("ended")

    def wait_until_ready(self, client: object) -> None: ...


EVENTS: list[str] = []


@contextmanager
def fake_link(kind: str, profile: LinkProfile, tcp: TcpSettings) -> Iterator[Link]:
    yield FakeLink(kind, profile, tcp, this_machine(), LoopbackControl(), lambda _: None)
    EVENTS.append("down")


def test_every_link_is_measured_before_any_node_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that loads its model takes the cores that a measurement needs."""
    EVENTS.clear()
    monkeypatch.setattr(bench, "open_link", fake_link)
    monkeypatch.setattr(bench, "ServingCluster", FakeProcess)
    monkeypatch.setattr(bench, "ClientProcess", FakeProcess)
    model = bench.Model(Path("model"), "model", range(10))
    with bench.open_benches(PLAN, (0, 1), model, Path("logs")) as benches:
        assert EVENTS == ["measured"] * 2 + ["started"] * 2 * 3  # two clusters and a client, each
        for one in benches.values():
            assert one.clusters["a"] is one.clusters["b"] is not one.clusters["c"]
    assert EVENTS[8:] == ["ended"] * 2 * 3 + ["down"] * 2  # no link before what runs on it
