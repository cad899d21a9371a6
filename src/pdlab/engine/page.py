"""The engine's results page: every bar as judged, and every cell, from the record alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from statistics import median

from pdlab.engine.run import FIRST_TOKEN, EngineCell, EngineRecord
from pdlab.record_files import write_whole

PAGE, RECORD = "engine.md", "engine.json"
OURS, INT8, VLLM = "pdspan", "pdspan int8", "vllm"
IN_CHUNKS, CLUSTER = "pdspan in chunks of 512", "pdspan cluster"


@dataclass(frozen=True, slots=True)
class EngineBar:
    """``figure`` takes one task's cells of ``arm`` and of ``rival``, if there is one, and gives a
    value for each repetition; the median of them is judged."""

    task: str
    arm: str
    rival: str | None
    figure: Callable[[EngineCell, EngineCell | None], Sequence[float]]
    words: str
    limit: float
    is_least: bool = True

    @property
    def what(self) -> str:
        return f"{self.task}: {self.arm} {self.words}"

    @property
    def bound(self) -> str:
        return f"{'>=' if self.is_least else '<='} {self.limit:g}"

    def is_met(self, figure: float) -> bool:
        return figure >= self.limit if self.is_least else figure <= self.limit


def _ratios(cell: EngineCell, rival: EngineCell | None) -> Sequence[float]:
    assert rival is not None
    pairs = zip(cell.tokens_per_s, rival.tokens_per_s, strict=True)
    return [ours / theirs for ours, theirs in pairs]


def _floor_shares(cell: EngineCell, _: EngineCell | None) -> Sequence[float]:
    return cell.floor_share or ()


def _added_ms(cell: EngineCell, rival: EngineCell | None) -> Sequence[float]:
    """By a prompt of 2048 tokens."""
    assert rival is not None
    pairs = zip(cell.tokens_per_s, rival.tokens_per_s, strict=True)
    return [1e3 * 2048 * (1 / ours - 1 / theirs) for ours, theirs in pairs]


def _over(task: str, arm: str, rival: str, at_least: float) -> EngineBar:
    return EngineBar(task, arm, rival, _ratios, f"over {rival}", at_least)


BARS = (
    _over("prefill 2048", OURS, VLLM, 1.4),
    _over("decode 1 x 128", OURS, VLLM, 1.6),
    _over("decode 8 x 128", OURS, VLLM, 1.5),
    _over("decode 32 x 128", OURS, VLLM, 1.3),
    _over("decode 8 x 2048", OURS, VLLM, 1.3),
    EngineBar("decode 1 x 128", OURS, None, _floor_shares, "over the memory floor", 0.75),
    _over("decode 1 x 128", INT8, OURS, 1.5),
    EngineBar(
        *(FIRST_TOKEN, CLUSTER, IN_CHUNKS, _added_ms),
        f"minus {IN_CHUNKS}, ms",
        *(120.0, False),
    ),
)


def judged(record: EngineRecord) -> list[tuple[EngineBar, float | None]]:
    """Each bar with its figure; None where it was not measured."""
    return [(bar, _figure(bar, record.cells)) for bar in BARS]


def write_page(directory: Path, record: EngineRecord) -> None:
    write_whole(directory / RECORD, (dumps(asdict(record), indent=1) + "\n").encode())
    write_whole(directory / PAGE, ("\n".join(_lines(record)) + "\n").encode())


def _figure(bar: EngineBar, cells: Sequence[EngineCell]) -> float | None:
    found = {cell.arm: cell for cell in cells if cell.task == bar.task}
    cell, rival = found.get(bar.arm), found.get(bar.rival or "")
    if cell is None or (bar.rival is not None and rival is None):
        return None
    values = bar.figure(cell, rival)
    return median(values) if values else None


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
            yield f"| {bar.what} | {bar.bound} | | not measured |"
            continue
        said = "met" if bar.is_met(figure) else "**not met**"
        yield f"| {bar.what} | {bar.bound} | {figure:.2f} | {said} |"
    yield "\n## Cells\n"
    yield "`decode B x C`: B sequences whose contexts begin at C tokens. `first token of 2048`, by"
    yield "the cluster: router, prefill node, transfer and decode node on this machine, as a client"
    yield "sees it.\n"
    yield "| task | arm | tokens/s, median (range) | of the memory floor |"
    yield "|---|---|---|---|"
    for cell in record.cells:
        low, high = min(cell.tokens_per_s), max(cell.tokens_per_s)
        share = f"{median(cell.floor_share):.2f}" if cell.floor_share else ""
        yield (
            f"| {cell.task} | {cell.arm} | {cell.median_tokens_per_s:.1f} ({low:.1f} to {high:.1f})"
            f" | {share} |"
        )
