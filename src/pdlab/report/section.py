"""What the report says of one record: its origin, what speaks against it, its plots and tables."""

from collections.abc import Iterator
from dataclasses import dataclass

from pdlab.doubts import run_doubts
from pdlab.records import Record, ServingHeader, TransferRecord
from pdlab.report.concurrency_plot import concurrency_pictures
from pdlab.report.distance_plot import RATIO, distance_pictures, over_raw_tcp
from pdlab.report.links_plot import links_pictures
from pdlab.report.model_plot import model_pictures
from pdlab.report.picture import Picture
from pdlab.report.shares_plot import shares_pictures
from pdlab.report.tables import Table, tables_of
from pdlab.report.verdict_map import verdict_pictures
from pdlab.samples import metric_named, samples_of


@dataclass(frozen=True, slots=True)
class Section:
    """``name`` begins the names of its files."""

    name: str
    title: str
    summary: str
    origin: str
    doubts: tuple[str, ...]
    pictures: tuple[Picture, ...]
    tables: tuple[Table, ...]


def section_of(name: str, record: Record) -> Section:
    header = record if isinstance(record, TransferRecord) else record.header
    return Section(
        name=name,
        title=f"{name}: {header.scenario}",
        summary=_summary(record),
        origin=_origin(header),
        doubts=(*run_doubts(record), *_void_doubts(record)),
        pictures=tuple(_pictures(record)),
        tables=tuple(tables_of(record)),
    )


def _pictures(record: Record) -> Iterator[Picture]:
    metric = metric_named(None, record)
    samples = samples_of(record, metric)
    yield from links_pictures(record, samples, metric)
    yield from distance_pictures(record, samples, metric)
    if isinstance(record, TransferRecord):
        yield from distance_pictures(record, over_raw_tcp(samples), RATIO)
        yield from shares_pictures(record)
        yield from model_pictures(record)
        yield from verdict_pictures(record)
    else:
        yield from concurrency_pictures(record)
        yield from shares_pictures(record)


def _summary(record: Record) -> str:
    num_links = f"{len(record.link)} link{'s' if len(record.link) != 1 else ''}"
    if isinstance(record, TransferRecord):
        return f"{len(record.cells)} cells on {num_links}"
    failed = sum(request.status != "ok" for request in record.requests)
    return f"{len(record.requests)} requests on {num_links}, {failed} of them failed"


def _void_doubts(record: Record) -> Iterator[str]:
    if isinstance(record, TransferRecord):
        void = [cell.void for cell in record.cells if cell.void]
        if void:
            yield f"{len(void)} of {len(record.cells)} cells are void, for example: {void[0]}"
        unverified = sum(cell.digest is not None and not cell.verified for cell in record.cells)
        if unverified:
            yield f"{unverified} cells moved bytes that were not verified"


def _origin(header: TransferRecord | ServingHeader) -> str:
    host = header.host
    versions = ", ".join(f"{name} {version}" for name, version in host.versions.items())
    load = f"load {host.load_1m} at the start"
    return f"{header.created}, commit {header.commit}. {host}, {load}. {versions}."
