"""The two ends as processes, on loopback: every arm moves the same pages; what is wrong is said.

Needs no root. Nothing here is timed.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pdcore.errors import ConfigError, PdspanError, PeerUnavailable
from pdlab.link import Link, LinkProfile, open_link
from pdlab.records import TransferRecord
from pdlab.transfer.arms import ARMS
from pdlab.transfer.bench import OUR_ENDS
from pdlab.transfer.blocks import Blocks, number
from pdlab.transfer.cases import ALONE, BEHIND, FIRST, TENTH, Behind, NewPair
from pdlab.transfer.ends import Ends, Program, open_ends
from pdlab.transfer.lane import Lane
from pdlab.transfer.messages import ArmOpened, CloseArm, Expected, Expecting
from pdlab.transfer.pool import DIGEST_CHARACTERS, Extent
from pdlab.transfer.run import run_steps
from pdlab.transfer.trial import Trial

KIB, MIB = 2**10, 2**20
PAGE = 360 * KIB  # 30 layers
TRIAL = Trial(LinkProfile(), PAGE, 2 * MIB, ("auto",), kind="loopback", repetitions=1)
LIMIT_S = 60.0


@asynccontextmanager
async def ends_on_loopback(program: Program = OUR_ENDS) -> AsyncIterator[tuple[Ends, Link]]:
    with open_link("loopback", LinkProfile()) as link:
        async with open_ends(link, 4 * MIB, program) as ends:
            yield ends, link


async def run(*steps: Blocks | NewPair | Behind) -> TransferRecord:
    return await run_steps("test", steps, lambda task, fraction: None)


async def test_every_arm_moves_the_same_pages() -> None:
    record = await run(Blocks(Trial(
        LinkProfile(), PAGE, 2 * MIB, tuple(ARMS), kind="loopback", repetitions=2, limit_s=60.0
    )))  # fmt: skip
    assert [cell.notes for cell in record.cells] == [()] * len(ARMS)
    assert all(cell.verified and len(cell.goodput_bps) == 2 for cell in record.cells)
    assert len({cell.digest for cell in record.cells}) == 1
    assert len({cell.warm_bytes for cell in record.cells}) == 1
    frames = {cell.arm: cell.frame_bytes for cell in record.cells}
    assert frames["sequential_layer"] == 12 * KIB and frames["sequential"] == PAGE
    assert [cell.arm for cell in record.cells].count("raw_tcp") == 2


@pytest.mark.parametrize("arm", ["auto", "raw_tcp_4", "raw_grpc"])
async def test_a_page_that_arrives_otherwise_is_noticed(arm: str) -> None:
    async with ends_on_loopback() as (ends, link):
        await number(ends, PAGE, 5)
        lane = Lane(arm, ends, PAGE)
        await lane.open(link, ())
        assert (await lane.move(Extent(0, 5), LIMIT_S)).verified
        await ends.receiver.ask(Expected("0" * 5 * DIGEST_CHARACTERS), Expecting, LIMIT_S)
        sample = await lane.move(Extent(1, 3), LIMIT_S)
        assert sample.collected.num_wrong_pages == 3


async def test_pages_elsewhere_in_the_pool_are_moved_as_well() -> None:
    async with ends_on_loopback() as (ends, link):
        await number(ends, 64 * KIB, 60)
        for arm in ("sequential", "raw_tcp_1", "raw_grpc"):
            lane = Lane(arm, ends, 64 * KIB)
            await lane.open(link, ())
            assert (await lane.move(Extent(17, 31), LIMIT_S)).verified


async def test_settings_reach_both_ends() -> None:
    async with ends_on_loopback() as (ends, link):
        await number(ends, 64 * KIB, 32)
        lane = Lane("coalesced", ends, 64 * KIB)
        await lane.open(link, ("transfer.frame_bytes=131072",))
        told = (await lane.move(Extent(0, 32), LIMIT_S)).sent.told
        assert told is not None and told.frames == 16


async def test_cases_name_themselves() -> None:
    small = Trial(LinkProfile(), 64 * KIB, MIB, ("auto",), kind="loopback", repetitions=2)
    record = await run(NewPair(small, known_s=0.0), Behind(small, 64 * KIB, after_s=0.0))
    assert [cell.case for cell in record.cells] == [FIRST, TENTH, ALONE, BEHIND]
    assert all(cell.verified and len(cell.goodput_bps) == 2 for cell in record.cells)
    assert record.cells[0].warm_bytes == 0


async def test_an_error_of_an_end_comes_back_by_name() -> None:
    async with ends_on_loopback() as (ends, link):
        await number(ends, PAGE, 5)
        with pytest.raises(ConfigError, match="unknown key 'windo'"):
            await Lane("auto", ends, PAGE).open(link, ("transfer.windo=1",))
        with pytest.raises(PeerUnavailable, match="arm 'auto' is not open"):
            await Lane("auto", ends, PAGE).move(Extent(0, 1), LIMIT_S)
        with pytest.raises(PdspanError):
            await ends.sender.ask(CloseArm("auto"), ArmOpened, LIMIT_S)
        lane = Lane("auto", ends, PAGE)  # the ends are as good as before
        await lane.open(link, ())
        assert (await lane.move(Extent(0, 5), LIMIT_S)).verified


async def test_an_end_that_cannot_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Program(OUR_ENDS.sender, (sys.executable, "-c", "raise SystemExit(3)"))
    monkeypatch.setattr("pdlab.transfer.run.OUR_ENDS", broken)
    with pytest.raises(PeerUnavailable, match="the receiver ended early"):
        await run(Blocks(TRIAL))


async def test_an_arm_that_fails_costs_its_own_cells_only() -> None:
    """A page of one layer larger than a frame that the receiver may hold: refused by every mode."""
    tiny = Trial(
        LinkProfile(), PAGE, 2 * MIB, ("auto", "raw_tcp_1"), kind="loopback", repetitions=1,
        overrides=("transfer.resume_s=0.0000001",),
    )  # fmt: skip
    record = await run(Blocks(tiny), Blocks(TRIAL))
    failed, raw, auto = record.cells
    assert not failed.verified and failed.notes and not failed.goodput_bps
    assert raw.verified and auto.verified
