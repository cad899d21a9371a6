"""Plots are looked at by people; what can be wrong without anyone seeing it is tested here."""

import csv
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from pdcore.errors import PdspanError
from pdlab.records import ArmRecord, ServingRecord
from pdlab.report import write_report
from pdlab.report.concurrency_plot import concurrency_pictures
from pdlab.report.distance_plot import RATIO, distance_pictures, over_raw_tcp
from pdlab.report.links_plot import links_pictures
from pdlab.report.model_plot import model_pictures
from pdlab.report.picture import interval_words
from pdlab.report.shares_plot import Bar, shares_pictures
from pdlab.report.style import ARM_STYLES, in_order, rtt_axis
from pdlab.report.tables import tables_of
from pdlab.samples import GOODPUT, samples_of
from sample_records import CELL, LINK, request, serving_header, transfer_record
from synthetic_records import KIB, link_at, serving_sweep, transfer_grid

SMALL_GRID = transfer_grid(rates_bps=(1e9,), pages=(64 * KIB,), repetitions=3)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = {
        "grid.json": SMALL_GRID,
        "loopback.jsonl": serving_sweep(
            arms=("sequential", "auto"),
            links=(link_at(0.0, 1e10, "loopback"), link_at(0.05, 1e9), link_at(0.1, 1e9)),
            blocks=3,
            at_once=(1, 4),
        ),
    }
    return write_report(records, tmp_path_factory.mktemp("report") / "new").parent


def test_the_page_loads_nothing_from_elsewhere(report: Path) -> None:
    page = (report / "index.html").read_text()
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert all(
        s.startswith(("data:image/png;base64,", "#")) or (report / s).is_file() for s in sources
    )
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page


def test_every_kind_of_plot_is_there_as_a_png_of_its_own(report: Path) -> None:
    names = {path.name for path in report.glob("*.png")}
    assert names >= {
        "grid-goodput-over-rtt-1.png",
        "grid-share-of-raw-tcp-over-rtt-1.png",
        "grid-time-shares-1.png",
        "grid-predicted-and-measured.png",
        "grid-verdicts-1.png",
        "loopback-links-1.png",
        "loopback-ttft-over-rtt-1.png",
        "loopback-time-shares-1.png",
        "loopback-concurrency-1.png",
    }
    for path in report.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG\r\n")
    page = (report / "index.html").read_text()
    assert page.count("data:image/png;base64,") == len(names)


def test_every_caption_says_where_the_numbers_come_from(report: Path) -> None:
    page = unescape((report / "index.html").read_text())
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page, re.DOTALL)
    assert captions
    for caption in captions:
        assert "A CPU at 2.0 GHz, 2 cores" in caption
        assert "commit 0" in caption
        assert "3 repetitions" in caption
        assert re.search(r"as measured: (tun|loopback) .*\(.*bbr, large buffers\)", caption)


def test_tables_hold_every_number_of_the_record(report: Path) -> None:
    with (report / "grid-cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(SMALL_GRID.cells)
    for row, cell in zip(rows, SMALL_GRID.cells, strict=True):
        assert row["arm"] == cell.arm
        assert float(row["median_goodput_bps"]) == cell.median_goodput_bps
        assert len(row["all_goodput_bps"].split()) == len(cell.goodput_bps)
    with (report / "loopback-arms.csv").open() as file:
        arms = list(csv.DictReader(file))
    assert {row["arm"] for row in arms} == {"sequential", "auto"}
    assert all(
        float(row["low_ttft_s"]) <= float(row["ttft_s"]) <= float(row["high_ttft_s"])
        for row in arms
    )


def test_a_record_of_one_cell_or_of_no_request_makes_a_page(tmp_path: Path) -> None:
    nothing = ServingRecord(serving_header("auto"), (LINK,), (), complete=False)
    page = write_report({"a.json": transfer_record(), "a.jsonl": nothing}, tmp_path)
    text = page.read_text()
    assert "the run ended early, after 0 requests" in text
    assert (tmp_path / "a.json-cells.csv").is_file()
    assert (tmp_path / "a.jsonl-arms.csv").is_file()


def test_arms_that_failed_throughout_are_in_the_table_and_break_no_plot(tmp_path: Path) -> None:
    failed = [request("auto", i, None, status="TransferFailed", timeline=None) for i in range(3)]
    link = (link_at(0.0, 1e9), link_at(0.05, 1e9))
    good = [request("bulk", i, 1.0, link=i % 2) for i in range(4)]
    header = replace(serving_header(), arms=(ArmRecord("auto"), ArmRecord("bulk")))
    record = ServingRecord(header, link, (*failed, *good), complete=True)
    text = write_report({"a.jsonl": record}, tmp_path).read_text()
    assert "7 requests on 2 links, 3 of them failed" in text


def test_names_from_records_are_text_and_not_markup(tmp_path: Path) -> None:
    record = replace(transfer_record(), scenario="<script>alert(1)</script>")
    text = write_report({"a.json": record}, tmp_path).read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_void_cells_are_said_on_top(tmp_path: Path) -> None:
    void = replace(CELL, void="raw_tcp reached 0.5 Gbit/s")
    text = write_report({"a.json": transfer_record(CELL, void)}, tmp_path).read_text()
    assert "1 of 2 cells are void, for example: raw_tcp reached 0.5 Gbit/s" in text


def test_a_place_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PdspanError, match="cannot write: Not a directory"):
        write_report({"a.json": transfer_record()}, tmp_path / "file" / "report")


def test_shares_of_raw_tcp_are_taken_block_by_block() -> None:
    cells = (
        replace(CELL, arm="raw_tcp", goodput_bps=(2e8, 4e8), verified=False, digest=None),
        replace(CELL, arm="auto", goodput_bps=(1e8, 4e8)),
    )
    (auto,) = over_raw_tcp(samples_of(transfer_record(*cells), GOODPUT))
    assert auto.blocks == {0: 0.5, 1: 1.0}


def test_no_distance_plot_of_one_distance() -> None:
    record = transfer_record()
    samples = samples_of(record, GOODPUT)
    assert not list(distance_pictures(record, samples, GOODPUT))
    assert not list(distance_pictures(record, over_raw_tcp(samples), RATIO))


def test_the_model_plot_counts_what_lies_in_its_band() -> None:
    near = replace(CELL, median_goodput_bps=1.0e8, predicted_bps=1.1e8)
    far = replace(CELL, median_goodput_bps=1.0e8, predicted_bps=2.0e8, page_bytes=1)
    (picture,) = model_pictures(transfer_record(near, far))
    assert "where 1 of 2 lie: auto 1 of 2." in picture.caption
    assert picture.title == "Predicted against measured, 1 Gbit/s, 256 MiB"


def test_cells_without_shares_or_prediction_have_no_such_plot() -> None:
    bare = replace(CELL, shares=None, predicted_bps=None, verdict=None)
    assert not list(shares_pictures(transfer_record(bare)))
    assert not list(model_pictures(transfer_record(bare)))


def test_a_cell_that_was_cut_short_says_so_in_the_table_and_beside_its_bar() -> None:
    payload = 11 * CELL.page_bytes
    whole = replace(CELL, payload_bytes=payload)
    cut = replace(whole, arm="sequential", moved_bytes=(CELL.page_bytes,) * 3, notes=("busy",))
    cells, _ = tables_of(transfer_record(whole, cut))
    rows = [dict(zip(cells.columns, row, strict=True)) for row in cells.rows]
    assert [row["notes"] for row in rows] == ["", "cut short: 1 of 11 pages; busy"]
    assert [row["least_moved_bytes"] for row in rows] == [payload, CELL.page_bytes]
    (picture,) = shares_pictures(transfer_record(whole, cut))
    assert "a time limit cut the payload short" in picture.caption
    (picture,) = shares_pictures(transfer_record(whole))
    assert "time limit" not in picture.caption


def test_beside_a_bar_stand_duration_verdict_and_what_was_moved() -> None:
    at = samples_of(transfer_record(), GOODPUT)[0].condition
    bar = Bar("auto", at, {"window_s": 0.5}, LINK, 3, "rtt_bound", "1 of 11 pages")
    assert bar.words == "500 ms, round trips, 1 of 11 pages"
    assert replace(bar, verdict="unknown", cut="").words == "500 ms"


def test_shares_do_not_stand_for_the_verdict() -> None:
    (picture,) = shares_pictures(transfer_record())
    assert "A share alone misleads" in picture.caption


def test_of_a_payload_that_is_no_whole_number_of_pages_the_pages_are_counted() -> None:
    cells, _ = tables_of(transfer_record(replace(CELL, payload_bytes=3 * CELL.page_bytes + 1)))
    assert cells.rows[0][cells.columns.index("least_moved_bytes")] == 3 * CELL.page_bytes


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([3, 5], "range"),
        ([6, 7], "95 % bootstrap interval of the median"),
        ([5, 6], "95 % bootstrap interval of the median, of fewer than 6 values their range"),
    ],
)
def test_of_few_values_whiskers_are_the_range(counts: list[int], words: str) -> None:
    assert interval_words(counts) == words


def test_captions_of_few_repetitions_claim_no_interval() -> None:
    samples = samples_of(SMALL_GRID, GOODPUT)
    (goodput,) = distance_pictures(SMALL_GRID, samples, GOODPUT)
    assert "Whiskers: range." in goodput.caption
    near = replace(CELL, link=1, rtt_s=0.0)
    record = transfer_record(CELL, near, link=(LINK, link_at(0.0, 1e10, "loopback")))
    (links,) = links_pictures(record, samples_of(record, GOODPUT), GOODPUT)
    assert "whiskers: range." in links.caption
    assert links.title.endswith("page 360 KiB, 256 MiB")


def test_the_rate_on_the_wire_is_named_where_it_is_drawn() -> None:
    samples = samples_of(SMALL_GRID, GOODPUT)
    (goodput,) = distance_pictures(SMALL_GRID, samples, GOODPUT)
    assert "Dotted: the link's rate on the wire, which payload cannot reach" in goodput.caption
    (ratio,) = distance_pictures(SMALL_GRID, over_raw_tcp(samples), RATIO)
    assert "Dotted" not in ratio.caption


@pytest.mark.parametrize(
    ("rtts_s", "scale", "label"),
    [
        ((0.0, 0.05), "symlog", "round-trip time (ms), linear below 1"),
        ((0.001, 0.05), "log", "round-trip time (ms)"),
    ],
)
def test_the_axis_of_round_trips_says_where_it_is_linear(
    rtts_s: tuple[float, ...], scale: str, label: str
) -> None:
    axes = Figure().subplots()
    rtt_axis(axes, rtts_s)
    assert (axes.get_xscale(), axes.get_xlabel()) == (scale, label)


def test_no_concurrency_plot_of_arms_with_one_load_each() -> None:
    timeline = {"transfer": {"page_bytes": 30_000_000}}
    arms = [
        request("quiet", 0, 1.0, timeline=timeline),
        request("inbound", 0, 1.0, timeline=timeline, concurrency=2),
    ]
    record = ServingRecord(serving_header("auto"), (LINK,), tuple(arms), complete=True)
    assert not list(concurrency_pictures(record))


def test_no_two_arms_look_alike() -> None:
    looks = [(style.colour, style.marker, style.line) for style in ARM_STYLES.values()]
    assert len(set(looks)) == len(looks)
    without_colour = [(style.marker, style.line, style.width) for style in ARM_STYLES.values()]
    assert len(set(without_colour)) == len(without_colour)


def test_arms_stand_in_the_order_of_the_ladder() -> None:
    assert in_order(["raw_tcp", "auto", "mine", "sequential"]) == [
        "sequential",
        "auto",
        "raw_tcp",
        "mine",
    ]


def test_a_table_is_csv_in_plain_numbers() -> None:
    cells, links = tables_of(transfer_record())
    header, row = cells.to_csv().decode().splitlines()
    assert "1000000000.0" in row
    assert header.startswith("arm,rtt_s,rate_bps")
    assert links.to_csv().decode().splitlines()[1].startswith("0,tun,0.05,")
