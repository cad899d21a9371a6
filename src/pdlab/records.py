"""What an experiment leaves behind: values only, as they stand in the record files.

Two kinds. A ``TransferRecord`` is one JSON object: the cells of a grid, each one arm on one link. A
``ServingRecord`` is JSON lines: a header, every link as it was measured, every request. Both state
the host, the commit and the links; a cell or a request names its link by ``link``, the link's place
in that list. ``pdlab.record_files`` writes and reads them. ``SCHEMA`` grows with every change that
an older reader would misunderstand.

Rates are bits per second of payload (pages), times are seconds, and a repetition is a block: value
i of one arm and value i of another were measured next to each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from pdlab.host import HostRecord

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """One link: what it was set to, and what was measured before it was used."""

    kind: str  # tun, netem, relay, loopback
    rtt_s: float
    rate_bps: float | None  # None: as fast as it goes
    loss: float  # share of packets
    jitter_s: float
    queue_bytes: int | None  # None: chosen by the link
    buffers: str  # large, stock
    congestion: str  # as in force inside the link's hosts
    rtt_min_s: float | None  # measured, as the three below; None: could not be
    rtt_median_s: float | None
    measured_rate_bps: float | None
    measured_with: str  # e.g. "one TCP connection, 2 s"
    slow_start_after_idle: bool = True
    metrics_save: bool = False  # may a connection start with what an earlier one learned?
    notes: tuple[str, ...] = ()  # what this link cannot do, e.g. bytes in flight of a relay


@dataclass(frozen=True, slots=True)
class Shares:
    """Where a sender's time went: exclusive, in seconds, summing up to the transfer's duration."""

    producer_s: float
    prepare_s: float
    window_s: float
    transport_s: float


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm on one link with one page size and one payload."""

    arm: str  # a transfer mode, or a yardstick: raw_tcp, raw_grpc, nixl
    rtt_s: float
    rate_bps: float | None
    page_bytes: int
    payload_bytes: int
    stripes: int  # connections; the most that were used
    window_bytes: int | None  # the last one in force; None: the arm has no window of ours
    frame_bytes: int | None
    goodput_bps: tuple[float, ...]  # every repetition
    median_goodput_bps: float
    ratio_to_raw_tcp: float | None  # of medians; raw_tcp: the better of 1 and 4 connections
    predicted_bps: float | None  # by the first-principles model
    verdict: str | None  # the most frequent one
    shares: Shares | None  # of the repetition with the median goodput
    cpu_s_per_gb: float | None  # both ends together, median
    verified: bool  # every byte of every repetition was compared
    link: int
    loss: float = 0.0
    jitter_s: float = 0.0
    buffers: str = "large"
    congestion: str = ""
    concurrency: int = 1  # transfers at once
    case: str = ""  # what is out of the ordinary, e.g. "tenth of a new pair"; not to be compared
    moved_bytes: tuple[int, ...] = ()  # per repetition, where a time limit cut it short
    time_limit_s: float | None = None
    warm_bytes: int = 0  # carried by these connections before the first repetition
    warmup_bytes: int = 0  # of those, sent by the product to keep the path warm
    sender_cpu_s_per_gb: float | None = None
    receiver_cpu_s_per_gb: float | None = None
    rss_growth_bytes: int | None = None  # both ends' peak over start-up with pools touched
    digest: str | None = None  # of the bytes that arrived, equal for equal payloads
    void: str | None = None  # why this cell proves nothing, e.g. a slow yardstick
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TransferRecord:
    scenario: str  # how the command was called
    created: str  # ISO 8601, UTC
    host: HostRecord
    commit: str
    link: tuple[LinkRecord, ...]
    cells: tuple[Cell, ...]
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class ArmRecord:
    """One side of a serving experiment. ``settings``: what ``--set`` would say, by key."""

    name: str
    mode: str | None = None  # transfer mode; None: the cluster's default, or colocated
    placement: str = "disaggregated"
    settings: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ServingHeader:
    scenario: str
    created: str  # ISO 8601, UTC
    config: Mapping[str, Any]  # the scenario and the cluster, every default filled in
    arms: tuple[ArmRecord, ...]
    host: HostRecord
    commit: str
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request. Latencies count from ``scheduled_s``, the moment the workload asked for it."""

    arm: str
    repetition: int  # the block
    index: int  # in the workload: equal for the same prompt in every arm
    link: int
    scheduled_s: float  # since the arm of this repetition began
    sent_s: float
    status: str  # "ok", or the error's type
    ttft_s: float | None
    e2e_s: float | None
    itl_s: tuple[float, ...]
    prompt_tokens: int
    token_ids: tuple[int, ...]
    prompt_digest: str | None = None  # equal for equal prompts, in this run and in others
    error: str | None = None
    warmup: bool = False  # recorded, but in no statistic
    concurrency: int = 1
    exposed_s: float | None = None  # router send to prefill start, plus last page to commit
    sent_bytes: int | None = None  # of KV pages, by the sender and by the receiver
    received_bytes: int | None = None
    timeline: Mapping[str, Any] | None = None  # as the router answered it


@dataclass(frozen=True, slots=True)
class ServingRecord:
    header: ServingHeader
    link: tuple[LinkRecord, ...]
    requests: tuple[RequestRecord, ...]
    complete: bool  # False: the run ended before its last request


Record = TransferRecord | ServingRecord


def median_of(values: tuple[float, ...]) -> float:
    """The median that records state; 0 of nothing, since an arm may move no byte in its time."""
    return median(values) if values else 0.0
