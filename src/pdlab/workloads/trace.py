"""A recorded workload, in the JSON-lines form that Mooncake published its traces in.

Each line has ``timestamp`` (ms), ``input_length``, ``output_length`` and ``hash_ids``: one id per
512 tokens of the prompt, equal ids for equal tokens under an equal prefix. The tokens themselves
are not published; here each id stands for 512 tokens drawn from (seed, id), so prompts share
prefixes exactly where the recorded ones did.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated, Any

from pdcore.errors import ConfigError
from pdcore.typed_table import Within, read_table
from pdlab.workloads.request import WorkRequest, random_tokens

TOKENS_PER_HASH = 512

Count = Annotated[int, Within(1)]


@dataclass(frozen=True, slots=True)
class Line:
    """As recorded. Other keys of a line are passed over."""

    timestamp: float  # ms
    input_length: Count
    output_length: Count
    hash_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """The first ``num_requests`` lines, ``speed`` times as fast as recorded, with lengths cut to
    what a small model can hold (a cut prompt keeps its beginning, and so its shared prefix)."""

    path: str
    num_requests: Count | None = None  # None: all
    speed: Annotated[float, Within(0, above=True)] = 1.0
    max_prompt_tokens: Count | None = None
    max_output_tokens: Count | None = None

    def requests(self, vocabulary: Sequence[int], seed: str) -> list[WorkRequest]:
        lines = list(islice(_lines(Path(self.path)), self.num_requests))
        if not lines:
            raise ConfigError(f"{self.path}: has no request")
        start_ms = min(line.timestamp for line in lines)
        return [
            WorkRequest(
                _prompt(line, _cut(line.input_length, self.max_prompt_tokens), vocabulary, seed),
                _cut(line.output_length, self.max_output_tokens),
                arrival_s=(line.timestamp - start_ms) / 1000 / self.speed,
            )
            for line in lines
        ]


def _lines(path: Path) -> Iterator[Line]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, start=1):
                if text.strip():
                    yield _line(text, f"{path}: line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the trace {path}: {error}") from None


def _line(text: str, where: str) -> Line:
    try:
        table: Any = json.loads(text)
    except ValueError:
        raise ConfigError(f"{where}: is not JSON") from None
    known = Line.__dataclass_fields__
    if isinstance(table, dict):
        table = {key: value for key, value in table.items() if key in known}
    line = read_table(Line, table, where)
    if len(line.hash_ids) * TOKENS_PER_HASH < line.input_length:
        raise ConfigError(
            f"{where}: {len(line.hash_ids)} hash_ids cover"
            f" {len(line.hash_ids) * TOKENS_PER_HASH} tokens of {line.input_length}"
        )
    return line


def _prompt(line: Line, num_tokens: int, vocabulary: Sequence[int], seed: str) -> tuple[int, ...]:
    num_hashes = -(-num_tokens // TOKENS_PER_HASH)
    tokens = [
        token
        for hash_id in line.hash_ids[:num_hashes]
        for token in random_tokens(vocabulary, TOKENS_PER_HASH, Random(f"{seed}/hash/{hash_id}"))
    ]
    return tuple(tokens[:num_tokens])


def _cut(length: int, most: int | None) -> int:
    return length if most is None else min(length, most)
