"""The records that lie in one directory. JSON files that are something else are left out, by name;
a record that cannot be read is an error, since a report without it would look complete.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pdcore.errors import ConfigError
from pdlab.record_files import LINES, read_record, text_of
from pdlab.records import Record

RECORD_SUFFIXES = (".json", ".jsonl")


@dataclass(frozen=True, slots=True)
class Directory:
    """Records by file name, in order of name."""

    records: Mapping[str, Record]
    left_out: tuple[Path, ...]


def read_directory(directory: Path) -> Directory:
    """Every record right in ``directory``. Raises ConfigError, also when there is none."""
    if not directory.is_dir():
        raise ConfigError(f"{directory}: is not a directory")
    paths = sorted(
        path
        for path in directory.iterdir()
        if path.suffix in RECORD_SUFFIXES and path.is_file()  # reading a pipe would wait
    )
    ours = [path for path in paths if _claims_to_be_record(path)]
    if not ours:
        raise ConfigError(f"{directory}: no record in it; pdspan lab run writes them")
    left_out = tuple(path for path in paths if path not in ours)
    return Directory({path.name: read_record(path) for path in ours}, left_out)


def _claims_to_be_record(path: Path) -> bool:
    """An empty file does too: a run that could not write its first line leaves one."""
    beginning = text_of(path)[:200]
    return '"schema"' in beginning or beginning.startswith(LINES) or not beginning.strip()
