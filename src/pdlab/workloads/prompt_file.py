"""Prompts that somebody wrote: a text file with a prompt a line, or JSON lines with ``prompt`` and,
where it matters, ``output_tokens``."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pdcore.errors import ConfigError
from pdcore.typed_table import Within, read_table
from pdlab.workloads.request import WorkRequest

Count = Annotated[int, Within(1)]


@dataclass(frozen=True, slots=True)
class Line:
    prompt: str
    output_tokens: Count | None = None


@dataclass(frozen=True, slots=True)
class PromptFile:
    """The file's prompts in their order, from the beginning again when there are too few."""

    path: str
    output_tokens: Count
    num_requests: Count | None = None  # None: as many as the file has

    def requests(self, vocabulary: Sequence[int], seed: str) -> list[WorkRequest]:
        lines = _lines(Path(self.path))
        count = self.num_requests or len(lines)
        wanted = (lines[i % len(lines)] for i in range(count))
        return [
            WorkRequest(line.prompt, line.output_tokens or self.output_tokens) for line in wanted
        ]


def _lines(path: Path) -> list[Line]:
    try:
        texts = path.read_text(encoding="utf-8").split("\n")  # nothing else ends a line of JSON
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the prompts in {path}: {error}") from None
    numbered = [(i, text) for i, text in enumerate(texts, start=1) if text.strip()]
    if not numbered:
        raise ConfigError(f"{path}: has no prompt")
    if path.suffix == ".jsonl":
        return [_json_line(text, f"{path}: line {i}") for i, text in numbered]
    return [Line(text) for _, text in numbered]


def _json_line(text: str, where: str) -> Line:
    try:
        table: Any = json.loads(text)
    except ValueError:
        raise ConfigError(f"{where}: is not JSON") from None
    return read_table(Line, table, where)
