"""A congestion control that cannot be had: the reason, and what to do."""

import pytest

from pdcore.errors import ConfigError
from pdlab.link import namespaced


def refuse(namespace: str, settings: dict[str, str]) -> None:
    raise ConfigError("sysctl: permission denied")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cubic", r"does not allow 'cubic' in network namespaces: sysctl -w .*\"reno cubic\"$"),
        ("vegas", r"no congestion control 'vegas'; it has: reno cubic$"),
    ],
)
def test_a_refused_congestion_control(
    monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setattr(namespaced, "write_sysctls", refuse)
    monkeypatch.setattr(namespaced, "read_sysctl", lambda *_: "reno cubic")
    with pytest.raises(ConfigError, match=said):
        namespaced._set_congestion("a", name)
