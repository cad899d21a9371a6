"""The engine's results page: every bar as judged, and every cell, from the record alone."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from statistics import median

from pdlab.engine.run import EngineCell, EngineRecord
from pdlab.record_files import write_whole

PAGE, RECORD = "engine.md", "engine.json"
OURS, INT8, VLLM = "pdspan", "pdspan int8", "vllm"


@dataclass(frozen=True, slots=True)
class EngineBar:
    """``arm``'s tokens/s over ``rival``'s in each repetition of ``task``; without a rival, its
    share of the memory floor."""

    task: str
    arm: str
    rival: str | None
    at_least: float

    @property
    def what(self) -> str:
        return f"{self.task}: {self.arm} over {self.rival or 'the memory floor'}"


BARS = (
    EngineBar("prefill 2048", OURS, VLLM, 1.4),
    EngineBar("decode 1 x 128", OURS, VLLM, 1.6),
    EngineBar("decode 8 x 128", OURS, VLLM, 1.5),
    EngineBar("decode 32 x 128", OURS, VLLM, 1.3),
    EngineBar("decode 8 x 2048", OURS, VLLM, 1.3),
    EngineBar("decode 1 x 128", OURS, None, 0.75),
    EngineBar("decode 1 x 128", INT8, OURS, 1.5),
)


def judged(record: EngineRecord) -> list[tuple[EngineBar, float | None]]:
    """Each bar with its figure; None where it was not measured."""
    return [(bar, _figure(bar, record.cells)) for bar in BARS]


def write_page(directory: Path, record: EngineRecord) -> None:
    write_whole(directory / RECORD, (dumps(asdict(record), indent=1) + "\n").encode())
    write_whole(directory / PAGE, ("\n".join(_lines(record)) + "\n").encode())


def _figure(bar: EngineBar, cells: Sequence[EngineCell]) -> float | None:
    found = {(cell.arm, cell.task): cell for cell in cells}
    cell = found.get((bar.arm, bar.task))
    if bar.rival is None:
        return median(cell.floor_share) if cell and cell.floor_share else None
    rival = found.get((bar.rival, bar.task))
    if cell is None or rival is None:
        return None
    pairs = zip(cell.tokens_per_s, rival.tokens_per_s, strict=True)
    return median(ours / theirs for ours, theirs in pairs)


def _lines(record: EngineRecord) -> Iterator[str]:
    yield "# Engines, measured\n"
    yield "Written by `make bench-engine` from the record beside it; do not edit.\n"
    yield f"- Host: {record.host}; load when it began: {record.host.load_1m}"
    yield f"- Versions: {', '.join(f'{k} {v}' for k, v in record.host.versions.items())}"
    yield f"- Commit: {record.commit}; begun {record.created}"
    yield f"- {record.threads} threads each, the others stopped; raw record: [{RECORD}]({RECORD})"
    yield f"- Computed in: {', '.join(f'{arm} {dtype}' for arm, dtype in record.dtypes.items())}"
    yield "\n## Bars\n"
    yield "| what | bar | median of the repetitions | |"
    yield "|---|---|---|---|"
    for bar, figure in judged(record):
        if figure is None:
            yield f"| {bar.what} | >= {bar.at_least:g} | | not measured |"
            continue
        said = "met" if figure >= bar.at_least else "**not met**"
        yield f"| {bar.what} | >= {bar.at_least:g} | {figure:.2f} | {said} |"
    yield "\n## Cells\n"
    yield "`decode B x C`: B sequences whose contexts begin at C tokens.\n"
    yield "| task | arm | tokens/s, median (range) | of the memory floor |"
    yield "|---|---|---|---|"
    for cell in record.cells:
        low, high = min(cell.tokens_per_s), max(cell.tokens_per_s)
        share = f"{median(cell.floor_share):.2f}" if cell.floor_share else ""
        yield (
            f"| {cell.task} | {cell.arm} | {cell.median_tokens_per_s:.1f} ({low:.1f} to {high:.1f})"
            f" | {share} |"
        )
