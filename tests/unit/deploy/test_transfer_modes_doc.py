"""docs/transfer-modes.md against the code: the ladder, the worked table, verdicts, events."""

import math
import re
from pathlib import Path as File

import pytest

from kvtransfer import in_words
from kvtransfer.limits import MODES, FrameUnit, Starts, limits_for
from kvtransfer.path_model import Path, Shape, Step, modelled_s
from kvtransfer.verdict import Verdict, gains_s, verdict_of
from pdcore.kv_layout import KvLayout
from pdcore.settings import TransferSettings

ROOT = File(__file__).parents[3]
DOC = (ROOT / "docs/transfer-modes.md").read_text()
# SmolLM2-135M in bfloat16.
LAYOUT = KvLayout("smollm2", 30, 3, 64, 16, "bfloat16")
NUM_PAGES = 2048 // LAYOUT.page_tokens


def rows(heading: str) -> list[list[str]]:
    """The cells of all tables of a section, without backticks."""
    section = DOC.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\|(.+)\|$", section, re.MULTILINE)
    return [[cell.strip().strip("`") for cell in line.split("|")] for line in lines]


def test_contents_and_headings_agree() -> None:
    headings = re.findall(r"^## (.+)$", DOC, re.MULTILINE)
    contents = re.findall(r"^- \[(.+)\]\(#(.+)\)$", DOC, re.MULTILINE)
    assert [title for title, _ in contents] == headings
    assert [anchor for _, anchor in contents] == [h.lower().replace(" ", "-") for h in headings]


def test_the_ladder_is_that_of_the_code() -> None:
    ladder = {row[0]: row[1:] for row in rows("The ladder") if row[0] in MODES}
    assert list(ladder) == list(MODES)
    for name, (starts, in_flight, frame, connections) in ladder.items():
        mode = MODES[name]
        assert (starts == "after prefill") == (mode.starts is Starts.AFTER_PREFILL)
        assert in_flight.startswith("one frame") == (not mode.windowed)
        assert frame.startswith("one layer") == (mode.frame is FrameUnit.LAYER)
        assert (frame == "one page") == (mode.frame is FrameUnit.PAGE)
        assert (connections == "stripes") == mode.striped
        assert frame.startswith("from the measured") == mode.adaptive


WORKED = [row for row in rows("The model") if len(row) == 6 and row[0] in MODES]


def test_the_worked_table_has_every_mode_that_differs_there() -> None:
    assert [row[0] for row in WORKED] == list(MODES)[:5]


@pytest.mark.parametrize("row", WORKED, ids=[row[0] for row in WORKED])
def test_the_worked_table_is_the_models(row: list[str]) -> None:
    mode, frames, *told = row
    limits = limits_for(mode, TransferSettings(), LAYOUT)
    frame_bytes = limits.frame.pages * limits.frame.layers * LAYOUT.layer_bytes
    page_bytes = NUM_PAGES * LAYOUT.page_bytes
    shape = Shape((Step(0.0, page_bytes),), frame_bytes, limits.window_bytes or 0)
    cost_s = 3e-4 + 2.4e-9 * frame_bytes
    assert int(frames) == math.ceil(page_bytes / frame_bytes)
    expected = []
    for rtt_s in (0.0, 0.05):
        path = Path(rtt_s, 0.965e9 / 8, cost_s, 0.6 * cost_s)
        expected += [in_words.time(modelled_s(shape, path)), verdict_of(gains_s(shape, path))]
    assert told == expected


def test_every_verdict_is_explained() -> None:
    assert {row[0] for row in rows("Reading a verdict")} >= set(Verdict)
    advised = " ".join(row[0] for row in rows("What to do"))
    assert all(verdict in advised for verdict in Verdict)


def test_every_event_is_explained() -> None:
    """Those that the code notes by name."""
    sources = [path.read_text() for path in (ROOT / "src/kvtransfer").glob("*.py")]
    noted = {name for text in sources for name in re.findall(r'\.(?:note|event)\(\s*"(\w+)"', text)}
    told = {row[0] for row in rows("The trace")}
    assert noted <= told
    assert told <= noted | {"event", "---"}
