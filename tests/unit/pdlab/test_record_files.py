import errno
import json
import os
import re
from pathlib import Path

import pytest

from pdcore.errors import ConfigError, PdspanError
from pdlab.record_files import (
    ServingWriter,
    read_record,
    read_serving,
    read_transfer,
    write_transfer,
)
from pdlab.records import SCHEMA
from sample_records import CELL, LINK, REQUEST, serving_header, transfer_record


def written_serving(path: Path, num_requests: int = 2) -> Path:
    with ServingWriter(path, serving_header("auto")) as writer:
        writer.add_link(LINK)
        for _ in range(num_requests):
            writer.add(REQUEST)
        writer.finish()
    return path


def test_a_transfer_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    record = transfer_record()
    write_transfer(tmp_path / "new" / "transfer.json", record)
    assert read_transfer(tmp_path / "new" / "transfer.json") == record
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["transfer.json"]


def test_a_transfer_record_is_one_object_with_the_published_keys(tmp_path: Path) -> None:
    write_transfer(tmp_path / "transfer.json", transfer_record())
    table = json.loads((tmp_path / "transfer.json").read_text())
    assert {"schema", "host", "commit", "link", "cells"} <= set(table)
    assert {
        *("arm", "rtt_s", "rate_bps", "page_bytes", "payload_bytes", "stripes", "window_bytes"),
        *("frame_bytes", "goodput_bps", "median_goodput_bps", "ratio_to_raw_tcp"),
        *("predicted_bps", "verdict", "shares", "cpu_s_per_gb", "verified"),
    } <= set(table["cells"][0])


def test_a_serving_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    record = read_serving(written_serving(tmp_path / "serve.jsonl"))
    assert record.header == serving_header("auto")
    assert record.link == (LINK,)
    assert record.requests == (REQUEST, REQUEST)
    assert record.complete


def test_a_run_that_was_stopped_is_readable_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "serve.jsonl"
    with ServingWriter(path, serving_header("auto")) as writer:
        writer.add_link(LINK)
        writer.add(REQUEST)
    record = read_serving(path)
    assert len(record.requests) == 1
    assert not record.complete


def test_records_are_never_written_over(tmp_path: Path) -> None:
    path = written_serving(tmp_path / "serve.jsonl")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="exists"):
        ServingWriter(path, serving_header("auto"))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda text: "", "is empty"),
        (lambda text: text[:-20], "ends in the middle"),
        (lambda text: text.replace(f'"schema":{SCHEMA}', '"schema":99', 1), "schema 99"),
        (lambda text: text.replace('"schema"', '"shema"', 1), "no 'schema'"),
        (lambda text: text.replace('"arm"', '"amr"', 1), "unknown key 'amr'; did you mean 'arm'"),
        (lambda text: text.replace('"link":0', '"link":7', 1), "link 7"),
        (lambda text: "rtt,rate\n0,1\n", "is not JSON"),
        (lambda text: "[1, 2]\n", "expected an object"),
        (
            lambda text: re.sub(r'"rtt_s":[\d.]+', '"rtt_s":NaN', text, count=1),
            "nan is not a number",
        ),
        (
            lambda text: re.sub(r'"rtt_s":[\d.]+', f'"rtt_s":{"9" * 400}', text, count=1),
            "too large",
        ),
        (
            lambda text: re.sub(r'"rtt_s":[\d.]+', f'"rtt_s":{"9" * 5000}', text, count=1),
            "is no record",
        ),
        (lambda text: "[" * 100_000, "is no record"),
        (lambda text: text.replace('"arm":"', '"arm":"\\ud800', 1), "holds half a character"),
    ],
)
@pytest.mark.parametrize("kind", ["transfer", "serving"])
def test_a_damaged_file_is_one_clear_line(tmp_path: Path, kind: str, damage, problem: str) -> None:
    path = tmp_path / "record"
    if kind == "transfer":
        write_transfer(path, transfer_record())
    else:
        written_serving(path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(ConfigError) as caught:
        read_record(path)
    assert problem in caught.value.message
    assert caught.value.message.startswith(str(path))
    assert "\n" not in caught.value.message


def test_a_truncated_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = written_serving(tmp_path / "serve.jsonl")
    path.write_text(path.read_text()[:-5])
    with pytest.raises(ConfigError, match="line 5 ends in the middle"):
        read_record(path)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00binary"])
def test_a_file_that_is_not_text(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plot.png").write_bytes(content)
    with pytest.raises(ConfigError, match="is not text"):
        read_record(tmp_path / "plot.png")


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_record(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_record(tmp_path)


def test_the_wrong_kind_is_said(tmp_path: Path) -> None:
    write_transfer(tmp_path / "transfer.json", transfer_record())
    written_serving(tmp_path / "serve.jsonl")
    with pytest.raises(ConfigError, match="of transfers, not of serving"):
        read_serving(tmp_path / "transfer.json")
    with pytest.raises(ConfigError, match="of serving, not of transfers"):
        read_transfer(tmp_path / "serve.jsonl")


def test_a_full_disk_under_an_object_is_one_line_and_leaves_the_device_alone() -> None:
    with pytest.raises(PdspanError, match=r"^/dev/full: cannot write: No space left on device$"):
        write_transfer(Path("/dev/full"), transfer_record())
    assert Path("/dev/full").is_char_device()


def test_a_full_disk_keeps_the_object_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "transfer.json"
    write_transfer(path, transfer_record())
    before = path.read_bytes()

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as half:
            half.write(data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(PdspanError, match="No space left"):
        write_transfer(path, transfer_record(CELL, CELL))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_line_that_the_disk_did_not_take_whole_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "serve.jsonl"
    with ServingWriter(path, serving_header("auto")) as writer:
        writer.add_link(LINK)
        writer.add(REQUEST)
        writer._file = HalfFull(writer._file)
        with pytest.raises(PdspanError, match="cannot write: No space left on device"):
            writer.add(REQUEST)
    assert read_serving(path).requests == (REQUEST,)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_transfer(path, transfer_record()),
        lambda path: ServingWriter(path, serving_header("auto")),
    ],
)
def test_a_file_where_a_directory_should_be_is_no_earlier_record(tmp_path: Path, write) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PdspanError, match=r"cannot write: (File exists|Not a directory)"):
        write(tmp_path / "file" / "record")


class HalfFull:
    """A file on a disk that takes 10 more bytes and then none."""

    def __init__(self, file) -> None:
        self._file = file
        self._room = 10

    def write(self, data: memoryview) -> int:
        if not self._room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self._file.write(data[: self._room])
        self._room -= taken
        return taken

    def __getattr__(self, name: str):
        return getattr(self._file, name)
