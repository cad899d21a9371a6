import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pdlab.record_files import ServingWriter, write_transfer
from pdlab.records import RequestRecord
from pdspan.main import main
from sample_records import CELL, LINK, request, serving_header, transfer_record

FAST = [0.50, 0.52, 0.55, 0.50, 0.70, 0.51, 0.53, 0.52]
SLOW = [2 * ttft_s for ttft_s in FAST]


def arm(name: str, ttfts_s: list[float], **fields: object) -> list[RequestRecord]:
    return [request(name, i, ttft_s, **fields) for i, ttft_s in enumerate(ttfts_s)]


def write_serving(path: Path, *requests: RequestRecord) -> str:
    modes = dict.fromkeys(request.arm for request in requests)
    with ServingWriter(path, serving_header(*modes)) as writer:
        writer.add_link(LINK)
        for one in requests:
            writer.add(one)
        writer.finish()
    return str(path)


def test_compare_says_by_its_status_what_it_found(tmp_path: Path) -> None:
    same = write_serving(tmp_path / "same", *arm("windowed", FAST), *arm("coalesced", FAST))
    other = write_serving(tmp_path / "other", *arm("windowed", SLOW), *arm("coalesced", FAST))
    wrong = write_serving(
        tmp_path / "wrong", *arm("windowed", SLOW), *arm("coalesced", FAST, token_ids=(9,))
    )
    assert main(["lab", "compare", same]) == 0
    assert main(["lab", "compare", other]) == 3
    assert main(["lab", "compare", wrong]) == 4
    assert main(["lab", "compare", same, str(tmp_path / "none")]) == 2


def test_compare_two_files_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write_serving(tmp_path / "a", *arm("auto", SLOW))
    b = write_serving(tmp_path / "b", *arm("auto", FAST))
    assert main(["lab", "compare", a, b, "--json"]) == 3
    table = json.loads(capsys.readouterr().out)
    assert table["metric"] == "ttft_s"
    assert table["rows"][0]["effect"]["ratio"] == pytest.approx(0.5)
    assert any("not interleaved" in warning for warning in table["warnings"])


def test_compare_wants_two_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["lab", "compare", "a.json", "--arms", "auto"])
    assert exit_.value.code == 2
    assert "'auto' is not two names" in capsys.readouterr().err


def test_calibration_counts_the_runs_of_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(20):
        b = SLOW if number == 7 else FAST
        write_serving(tmp_path / f"aa-{number}.jsonl", *arm("auto", FAST), *arm("auto_2", b))
    assert main(["lab", "compare", str(tmp_path), "--aa"]) == 0
    assert capsys.readouterr().out.startswith("1 of 20 A/A runs found a difference")
    assert main(["lab", "compare", str(tmp_path), "b.json", "--aa"]) == 2
    assert "leave out B, --arms" in capsys.readouterr().err


def test_report_prints_where_the_page_is_and_names_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_transfer(tmp_path / "transfer.json", transfer_record())
    (tmp_path / "other.json").write_text('{"medians": {}}')
    os.mkfifo(tmp_path / "pipe.json")  # whoever reads it, waits
    assert main(["lab", "report", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == str(tmp_path / "report" / "index.html")
    assert "other.json: not a record of pdspan lab, left out" in printed.err
    assert main(["lab", "report", str(tmp_path), "--out", str(tmp_path / "elsewhere")]) == 0
    assert (tmp_path / "elsewhere" / "index.html").is_file()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no record in it"),
        ("", "is empty, not a record"),
        ('{"schema":99,"cells":[]}', "schema 99; this version reads schema 1"),
        ('{"schema":1,"scenario"', "ends in the middle"),
    ],
)
def test_a_directory_that_cannot_be_reported_on_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "transfer.json").write_text(content)
    assert main(["lab", "report", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.startswith("pdspan: error: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "report").exists()


def test_a_missing_directory_is_one_line(tmp_path: Path) -> None:
    assert main(["lab", "report", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(
    ("package", "action"),
    [("matplotlib", ["report", "{dir}"]), ("numpy", ["compare", "{dir}/transfer.json"])],
)
def test_without_the_lab_extra_one_line_says_how_to_get_it(
    tmp_path: Path, package: str, action: list[str]
) -> None:
    cells = [replace(CELL, arm=mode) for mode in ("windowed", "coalesced")]
    write_transfer(tmp_path / "transfer.json", transfer_record(*cells))
    words = [word.format(dir=tmp_path) for word in action]
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"from pdspan.main import main; sys.exit(main(['lab', *{words!r}]))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        f"pdspan: error: {package} is not installed; pip install 'pdspan[lab]'\n"
    )


def test_help_loads_neither_plots_nor_statistics() -> None:
    program = (
        "import sys\nfrom pdspan.arguments import build_parser\nbuild_parser()\n"
        "assert not {'numpy', 'matplotlib', 'jinja2', 'pdlab.stats'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
