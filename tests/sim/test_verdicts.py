"""The model and the verdict against simulated transfers whose true path is known.

A verdict is right when the same transfer, run again with that impairment removed, gains most by it;
where two terms lie within 1.5x of each other either is right.
"""

import math
import random
from dataclasses import dataclass, replace

import pytest

from costed_path import CostedTransfer
from kvtransfer.limits import MODES
from kvtransfer.path_model import Path, modelled_s
from kvtransfer.report import PairPath, report_of, shape_of
from kvtransfer.verdict import Verdict
from pdcore.kv_layout import KvLayout
from pdcore.settings import TransferSettings

SETTINGS = TransferSettings()
NUM_CELLS = 30  # of each mode
MAX_FRAMES = 256


@dataclass(frozen=True)
class Cell:
    mode: str
    layout: KvLayout
    page_ready_s: tuple[float, ...]
    world: Path
    hidden_s: float  # of the software at each end, of any message


def cell_of(mode: str, chance: random.Random) -> Cell:
    """Of the grid that the laboratory runs, with any producer and any software."""
    layer_tokens, num_layers = chance.choice([(48, 1), (256, 1), (48, 30), (256, 32)])
    layout = KvLayout("any", num_layers, 1, 64, layer_tokens, "bfloat16")
    payload_bytes = chance.choice([4, 32, 256]) * 2**20
    frame_bytes = layout.layer_bytes if mode == "sequential_layer" else layout.page_bytes
    num_pages = max(1, min(payload_bytes // layout.page_bytes, MAX_FRAMES))
    if mode == "sequential_layer":
        num_pages = max(1, min(num_pages, MAX_FRAMES // num_layers))
    cost_s = (3e-4 + 2.4e-9 * frame_bytes) * 3 ** chance.uniform(-1, 1)
    world = Path(
        rtt_s=chance.choice([0.0, 0.001, 0.01, 0.05, 0.1, 0.2]),
        link_bytes_per_s=0.965 / 8 * chance.choice([1e9, 5e9]),
        frame_cost_s=cost_s,
        receive_cost_s=chance.uniform(0.4, 0.7) * cost_s,
    )
    chunk = max(1, num_pages // chance.randint(1, 8))
    chunk_s = chance.choice([0.0, 0.01, 0.1])
    ready_s = tuple(chunk_s * (min(page // chunk, 7)) for page in range(num_pages))
    hidden_s = chance.choice([0.0, 0.3, 0.8]) * min(cost_s, 5e-4) / 3
    return Cell(mode, layout, ready_s, world, hidden_s)


def run(cell: Cell, *, knows_rate: bool = False) -> tuple[CostedTransfer, float]:
    """And what it took, as its sender reports it."""
    transfer = CostedTransfer(
        cell.mode,
        SETTINGS,
        cell.layout,
        cell.page_ready_s,
        cell.world,
        knows_rate=knows_rate,
        hidden_s=cell.hidden_s,
    )
    return transfer, transfer.run()


def without(cell: Cell, verdict: Verdict) -> Cell:
    world = cell.world
    match verdict:
        case Verdict.COMPUTE:
            return replace(cell, page_ready_s=(0.0,) * len(cell.page_ready_s))
        case Verdict.SOFTWARE:
            free = replace(world, frame_cost_s=0.0, receive_cost_s=0.0)
            return replace(cell, world=free, hidden_s=0.0)
        case Verdict.RTT:
            return replace(cell, world=replace(world, rtt_s=0.0))
        case Verdict.BANDWIDTH:
            return replace(cell, world=replace(world, link_bytes_per_s=math.inf))


def cells(mode: str) -> list[Cell]:
    chance = random.Random(mode)
    return [cell_of(mode, chance) for _ in range(NUM_CELLS)]


@pytest.mark.parametrize("mode", MODES)
def test_the_model_says_what_the_simulation_takes(mode: str) -> None:
    """Within what holding back small frames, which the model leaves out, changes."""
    for cell in cells(mode):
        transfer, taken_s = run(cell)
        modelled = modelled_s(shape_of(transfer.queue), cell.world)
        assert modelled == pytest.approx(taken_s, rel=0.08, abs=1e-4), cell


@pytest.mark.parametrize("knows_rate", [True, False])
def test_the_verdict_names_what_gains_most(knows_rate: bool) -> None:
    """From what the sender noted and what the pair estimates, perhaps of an earlier transfer."""
    judged = [_judged(cell, knows_rate) for mode in MODES for cell in cells(mode)]
    wrong = [told for told in judged if told is not None]
    assert len(wrong) <= 0.02 * len(judged), "\n".join(wrong)


def _judged(cell: Cell, knows_rate: bool) -> str | None:
    """What is wrong with the verdict on ``cell``, or None."""
    transfer, taken_s = run(cell, knows_rate=knows_rate)
    gains = {
        verdict: taken_s - run(without(cell, verdict), knows_rate=knows_rate)[1]
        for verdict in Verdict
    }
    pair = PairPath(transfer.path.rtt_s, transfer.path.rate_bytes_per_s, tcp_rtt_s=cell.world.rtt_s)
    said = report_of(transfer.queue, cell.mode, pair, transfer.committed_s)
    if 1.5 * gains[Verdict(said.verdict)] >= max(gains.values()):
        return None
    return f"{said.verdict_text}; gains {gains}; {cell.world}"
