"""Record files: a transfer record is one JSON object, a serving record is JSON lines.

Nothing is left half written: an object appears by rename, a line that the disk did not take whole
is cut off again. Reading is strict: another schema, an unknown key, a line that ends in the middle
are each one ConfigError that names the file and the line.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, TypeVar

from pdcore.errors import ConfigError, PdspanError
from pdcore.typed_table import read_table
from pdlab.records import (
    SCHEMA,
    LinkRecord,
    Record,
    RequestRecord,
    ServingHeader,
    ServingRecord,
    TransferRecord,
)

T = TypeVar("T")

LINES = '{"record":'  # how every line of a serving record begins


def write_transfer(path: Path, record: TransferRecord) -> None:
    """Write the whole object, or leave ``path`` as it was and raise PdspanError."""
    write_whole(path, _object_text(record).encode())


def write_whole(path: Path, content: bytes) -> None:
    """All of ``content`` under ``path``, or PdspanError and whatever was there before."""
    with disk_errors(path):
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            path.write_bytes(content)  # a device or a pipe: there is nothing to rename onto
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draft.write_bytes(content)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


class ServingWriter:
    """Appends to a new file, a line at a time, each on disk when the call returns."""

    def __init__(self, path: Path, header: ServingHeader) -> None:
        self._path = path
        self._num_links = 0
        self._num_requests = 0
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                raise ConfigError(f"{path}: exists; records are never written over")
            self._file = path.open("xb", buffering=0)
        try:
            self._append("header", {"schema": header.schema, **asdict(header)})
        except PdspanError:  # an empty file would be a record that cannot be read
            self._file.close()
            path.unlink()
            raise

    def add_link(self, link: LinkRecord) -> int:
        """The place by which requests name this link."""
        self._append("link", asdict(link))
        self._num_links += 1
        return self._num_links - 1

    def add(self, request: RequestRecord) -> None:
        assert request.link < self._num_links
        self._append("request", asdict(request))
        self._num_requests += 1

    def finish(self) -> None:
        """The run is complete."""
        self._append("end", {"num_requests": self._num_requests})

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, kind: str, fields: dict[str, Any]) -> None:
        line = _json({"record": kind, **fields}).encode() + b"\n"
        with disk_errors(self._path):
            start = self._file.tell()
            try:
                _write_all(self._file.write, line)
            except OSError:
                self._file.seek(start)
                self._file.truncate()
                raise


def read_record(path: Path) -> Record:
    """The record in ``path``, of whichever kind it is. Raises ConfigError."""
    text = text_of(path)
    first = text.partition("\n")[0]
    if first.startswith(LINES):
        return _read_serving(path, text)
    if not text.strip():
        raise ConfigError(f"{path}: is empty, not a record")
    return _read_transfer(path, text)


def read_transfer(path: Path) -> TransferRecord:
    record = read_record(path)
    if not isinstance(record, TransferRecord):
        raise ConfigError(f"{path}: is a record of serving, not of transfers")
    return record


def read_serving(path: Path) -> ServingRecord:
    record = read_record(path)
    if not isinstance(record, ServingRecord):
        raise ConfigError(f"{path}: is a record of transfers, not of serving")
    return record


def _read_transfer(path: Path, text: str) -> TransferRecord:
    table = _parsed(text, str(path))
    _check_schema(table, str(path))
    record = read_table(TransferRecord, table, str(path))
    for i, cell in enumerate(record.cells):
        _check_link(cell.link, len(record.link), f"{path}: cells[{i}]")
    return record


def _read_serving(path: Path, text: str) -> ServingRecord:
    if not text.endswith("\n"):
        raise ConfigError(f"{path}: line {text.count(chr(10)) + 1} ends in the middle")
    lines = [
        (f"{path}: line {number}", _parsed(line, f"{path}: line {number}"))
        for number, line in enumerate(text.splitlines(), start=1)
    ]
    where, table = lines[0]
    _check_schema(table, where)
    header = _line(ServingHeader, table, where)
    links: list[LinkRecord] = []
    requests: list[RequestRecord] = []
    complete = False
    for where, table in lines[1:]:
        match table.get("record"):
            case "link":
                links.append(_line(LinkRecord, table, where))
            case "request":
                request = _line(RequestRecord, table, where)
                _check_link(request.link, len(links), where)
                requests.append(request)
            case "end":
                complete = True
            case other:
                raise ConfigError(f"{where}: record {other!r}; one of link, request, end")
    return ServingRecord(header, tuple(links), tuple(requests), complete)


def _line(cls: type[T], table: dict[str, Any], where: str) -> T:
    return read_table(cls, {k: v for k, v in table.items() if k != "record"}, where)


def _check_schema(table: dict[str, Any], where: str) -> None:
    schema = table.get("schema")
    if schema is None:
        raise ConfigError(f"{where}: no 'schema', so this is not a record of pdspan lab")
    if schema != SCHEMA:
        raise ConfigError(f"{where}: schema {schema}; this version reads schema {SCHEMA}")


def _check_link(link: int, num_links: int, where: str) -> None:
    if not 0 <= link < num_links:
        raise ConfigError(f"{where}: link {link}; the record has {num_links} links before it")


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        table = json.loads(text)
    except json.JSONDecodeError as error:
        ended = error.pos >= len(text.rstrip())
        problem = "ends in the middle" if ended else f"is not JSON ({error})"
        raise ConfigError(f"{where} {problem}") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, deep nesting
        raise ConfigError(f"{where} is no record: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: expected an object")
    return table


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """What the disk refuses is a PdspanError that names ``path``."""
    try:
        yield
    except OSError as error:
        raise PdspanError(f"{path}: cannot write: {error.strerror}") from None


def check_writable(path: Path) -> None:
    """Raises PdspanError when nothing could be written there, before anything long is begun."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.open("r+b").close()
        else:
            path.open("xb").close()
            path.unlink()


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text, so no record") from None


def _object_text(record: TransferRecord) -> str:
    """One line per link and per cell, so that two records can be compared by eye and by diff."""
    fields = asdict(record)
    rows = {key: ",\n".join(map(_json, fields.pop(key))) for key in ("link", "cells")}
    head = _json({"schema": fields.pop("schema"), **fields})
    lists = ",\n".join(f'"{key}":[\n{text}\n]' for key, text in rows.items())
    return f"{head[:-1]},\n{lists}}}\n"


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _write_all(write: Callable[[memoryview], int | None], data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[write(rest) or 0 :]
