"""NIXL as an arm: in its own environment, where that is installed; one line where it cannot be."""

from pathlib import Path

import pytest

from pdcore.errors import ConfigError, PeerUnavailable
from pdlab.link import LinkProfile
from pdlab.own_environment import OwnEnvironment
from pdlab.transfer.blocks import Blocks
from pdlab.transfer.nixl_end import interface_of
from pdlab.transfer.nixl_environment import ENVIRONMENT, nixl_program
from pdlab.transfer.run import run_steps
from pdlab.transfer.trial import Trial


def test_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    with pytest.raises(PeerUnavailable, match=r"no interface has the address 203\.0\.113\.9"):
        interface_of("203.0.113.9")


def test_an_environment_that_cannot_be_made_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PDSPAN_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"cannot install NIXL: .*no-such-package") as caught:
        nixl_program(OwnEnvironment("NIXL", ("./no-such-package",)))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("complete")), "the next try must start anew"


async def test_nixl_moves_the_same_pages_as_auto() -> None:
    if not ENVIRONMENT.is_installed:
        pytest.skip("NIXL's environment is made by 'pdspan lab transfer --arms nixl'")
    trial = Trial(
        LinkProfile(), 64 * 2**10, 4 * 2**20, ("auto", "nixl"), kind="loopback", repetitions=2
    )
    program = nixl_program()
    record = await run_steps("test", [Blocks(trial)], lambda *_: None, nixl=program)
    auto, nixl = record.cells
    assert (auto.notes, nixl.notes) == ((), ())
    assert nixl.verified and len(nixl.goodput_bps) == 2
    assert nixl.digest == auto.digest
