"""A plot with its caption, and what every caption ends with: where the numbers come from."""

from collections.abc import Iterable
from dataclasses import dataclass

from pdlab.conditions import rate_words
from pdlab.quantities import format_bits_per_s, format_seconds
from pdlab.records import LinkRecord, Record, TransferRecord
from pdlab.stats import MIN_PAIRS

FEW_VALUES = MIN_PAIRS  # with fewer the interval of a median is their range (``median_interval``)
MAX_LINKS = 6  # spelled out in a caption; the table of links has them all


@dataclass(frozen=True, slots=True)
class Picture:
    """``name`` is that of its file, without ``.png``."""

    name: str
    title: str
    caption: str
    png: bytes


def origin(record: Record, links: Iterable[LinkRecord], repetitions: Iterable[int]) -> str:
    """Host, commit, links as measured, repetitions: a sentence each."""
    header = record if isinstance(record, TransferRecord) else record.header
    return (
        f"{_repetitions(repetitions)} Host: {header.host}; commit {header.commit[:12]}"
        f"{'-dirty' if header.commit.endswith('-dirty') else ''}. {_links(links)}"
    )


def interval_words(counts: Iterable[int]) -> str:
    """What ``median_interval`` is of so many values, one number for each point."""
    each = list(counts)
    few = sum(count < FEW_VALUES for count in each)
    if not few:
        return "95 % bootstrap interval of the median"
    if few == len(each):
        return "range"
    return f"95 % bootstrap interval of the median, of fewer than {FEW_VALUES} values their range"


def _repetitions(counts: Iterable[int]) -> str:
    low, *_, high = sorted(counts) * 2
    number = str(low) if low == high else f"{low} to {high}"
    return f"{number} repetition{'s' if high > 1 else ''} per point."


def _links(links: Iterable[LinkRecord]) -> str:
    each = list(dict.fromkeys(map(_link, links)))
    more = f"; and {len(each) - MAX_LINKS} more" if len(each) > MAX_LINKS else ""
    return f"Links as set and as measured: {'; '.join(each[:MAX_LINKS])}{more}."


def _link(link: LinkRecord) -> str:
    measured_rtt = "?" if link.rtt_min_s is None else format_seconds(link.rtt_min_s)
    measured_bps = link.measured_rate_bps
    measured_rate = "?" if measured_bps is None else format_bits_per_s(measured_bps)
    asked = f"{link.kind} {format_seconds(link.rtt_s)}, {rate_words(link.rate_bps)}"
    tcp = f"{link.congestion}, {link.buffers} buffers"
    return f"{asked} ({measured_rtt}, {measured_rate}; {tcp})"
