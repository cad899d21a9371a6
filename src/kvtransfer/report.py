"""What a committed transfer tells of itself: its ``TransferReport``, with a verdict.

Here what the sender noted becomes the model's terms, and the judgement becomes fields and words. A
transfer that took much longer than ``auto`` would have is logged as a warning.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

from kvtransfer.accounting import SendState
from kvtransfer.frame_queue import FrameQueue
from kvtransfer.path_evidence import Evidence, path_from, send_cost_s
from kvtransfer.path_model import Path, Shape, Step
from kvtransfer.send_record import FrameTimes
from kvtransfer.stripe_policy import USABLE
from kvtransfer.tcp_backlog import TcpBacklog
from kvtransfer.verdict import Judgement, Measured, judge
from pdcore.generation import TransferId
from pdwire.v1.generation_pb2 import TransferReport

log = logging.getLogger(__name__)

AHEAD_FRAMES = 3
SLOW_FACTOR = 2.0  # and by slow_s
UNKNOWN = "unknown"  # in place of a verdict that failed


@dataclass(frozen=True, slots=True)
class PairPath:
    """What the pair knows of its path when a transfer ends. None: nothing yet.

    ``rtt_s`` is of a ping, two event loops included, ``least_rtt_s`` of the quickest of all;
    ``tcp_rtt_s`` the least that the kernel saw; ``send_buffer_bytes`` the most that it gives one
    connection; ``backlog``: what it could not send at once.
    """

    rtt_s: float | None
    rate_bytes_per_s: float | None
    tcp_rtt_s: float | None = None
    send_buffer_bytes: int | None = None
    warmup_bytes: int = 0
    least_rtt_s: float | None = None
    backlog: TcpBacklog | None = None


def report_of(queue: FrameQueue, mode: str, pair: PairPath, now: float) -> TransferReport:
    """Of a committed transfer, at the moment of its commit. Raises nothing: the pages are there,
    and a defect of the model is not to take them back."""
    shares = queue.accounting.seconds(now)
    report = TransferReport(
        mode=mode,
        page_bytes=queue.page_bytes,
        wire_bytes=queue.wire_bytes,
        frames=queue.num_frames,
        round_trips=queue.round_trips,
        stripes=queue.num_opened,
        attempts=queue.num_attempts,
        duration_s=sum(shares.values()),
        producer_s=shares[SendState.PRODUCER],
        prepare_s=shares[SendState.PREPARE],
        window_s=shares[SendState.WINDOW],
        transport_s=shares[SendState.TRANSPORT],
        max_in_flight_bytes=queue.max_in_flight_bytes,
        frame_bytes=round(queue.wire_bytes / queue.num_frames),
        window_bytes=queue.window_bytes,
        exposed_s=now - queue.record.pages[-1].at_s,
        warmup_bytes=pair.warmup_bytes,
    )
    try:
        _judge(report, queue, pair, shares, now)
    except Exception:
        log.exception("a transfer's verdict failed")
        report.verdict = report.verdict_text = UNKNOWN
    return report


def _judge(
    report: TransferReport,
    queue: FrameQueue,
    pair: PairPath,
    shares_s: Mapping[SendState, float],
    now: float,
) -> None:
    """Fill in the verdict, and the model's terms that it comes from."""
    path = path_of(queue, pair, report.duration_s)
    tcp_window_bytes = _tcp_window_bytes(queue, pair)
    measured = Measured(report.duration_s, report.exposed_s, shares_s, tcp_window_bytes)
    judged = judge(shape_of(queue, tcp_window_bytes), path, measured)
    report.verdict = judged.verdict
    report.verdict_text = judged.text
    report.rtt_s = path.rtt_s
    report.rate_bytes_per_s = path.link_bytes_per_s
    report.frame_cost_s = path.frame_cost_s
    report.modelled_s = judged.modelled_s
    report.auto_s = judged.auto_s
    _trace(queue, pair, path, judged, now)


def log_report(
    report: TransferReport, transfer_id: TransferId, peer: str, *, slow_s: float
) -> None:
    """A warning when it took much longer than ``auto`` would: by ``slow_s``, and twice as long."""
    is_slow = report.duration_s > max(report.auto_s + slow_s, SLOW_FACTOR * report.auto_s)
    log.log(
        logging.WARNING if is_slow else logging.DEBUG,
        "%stransfer to %s by %s, %s",
        "slow " if is_slow else "",
        peer,
        report.mode,
        report.verdict_text,
        extra={"transfer_id": transfer_id, "verdict": report.verdict},
    )


def shape_of(queue: FrameQueue, tcp_window_bytes: float = math.inf) -> Shape:
    """Times count from when the mode let the first page leave. Pages that were ready before it are
    ready at once. TCP's buffers bound a window as the mode does."""
    pages, started_s = queue.record.pages, queue.accounting.started_s
    assert started_s is not None, "a transfer that sent pages has started"
    page_bytes = queue.page_bytes // pages[-1].num_pages
    steps: dict[float, int] = {}
    num_before = 0
    for ready in pages:
        at_s = max(0.0, ready.at_s - started_s)
        steps[at_s] = steps.get(at_s, 0) + (ready.num_pages - num_before) * page_bytes
        num_before = ready.num_pages
    handed_off_s = queue.record.handed_off_s
    return Shape(
        steps=tuple(Step(at_s, nbytes) for at_s, nbytes in steps.items()),
        frame_bytes=max(1, round(queue.wire_bytes / queue.num_frames)),
        window_bytes=int(min(int(queue.record.window), tcp_window_bytes)),
        handoff_s=max(0.0, handed_off_s - started_s) if handed_off_s is not None else 0.0,
    )


def _tcp_window_bytes(queue: FrameQueue, pair: PairPath) -> float:
    if pair.send_buffer_bytes is None:
        return math.inf
    return int(USABLE * pair.send_buffer_bytes) * max(1, queue.num_opened)


def _backlog_share(queue: FrameQueue, pair: PairPath) -> float | None:
    """How often TCP held more than the one or two frames that a sender is ahead with anyway; None
    where its buffers have no room for a frame beside what is on the way."""
    started_s = queue.accounting.started_s
    if pair.backlog is None or started_s is None:
        return None
    frame_bytes = queue.wire_bytes / queue.num_frames
    room_bytes = _tcp_window_bytes(queue, pair) - (pair.rate_bytes_per_s or 0) * (pair.rtt_s or 0)
    if room_bytes / 2 < frame_bytes:
        return None
    least_bytes = min(AHEAD_FRAMES * frame_bytes, room_bytes / 2)
    return pair.backlog.share_since(started_s, least_bytes)


def path_of(queue: FrameQueue, pair: PairPath, duration_s: float) -> Path:
    record = queue.record
    return path_from(
        Evidence(
            page_bytes=queue.page_bytes,
            duration_s=duration_s,
            frame_bytes=queue.wire_bytes / queue.num_frames,
            ping_rtt_s=pair.rtt_s,
            least_ping_s=pair.least_rtt_s,
            tcp_rtt_s=pair.tcp_rtt_s,
            pair_bytes_per_s=(record.rate_before_bytes_per_s, pair.rate_bytes_per_s or 0.0),
            tcp_window_bytes=_tcp_window_bytes(queue, pair),
            backlog_share=_backlog_share(queue, pair),
            train_bytes_per_s=record.trains.bytes_per_s,
            send_cost_s=send_cost_s(record),
            receive_cost_s=record.receive_cost_s,
            first=record.first,
            lone=record.lone,
        )
    )


def _trace(queue: FrameQueue, pair: PairPath, path: Path, judged: Judgement, now: float) -> None:
    record = queue.record
    record.note(
        "verdict",
        now,
        verdict=judged.verdict,
        text=judged.text,
        modelled_s=judged.modelled_s,
        auto_s=judged.auto_s,
        gains_s=dict(judged.gains_s),
        rtt_s=path.rtt_s,
        rate_bytes_per_s=path.link_bytes_per_s,
        frame_cost_s=path.frame_cost_s,
        ping_rtt_s=pair.rtt_s,
        pair_bytes_per_s=pair.rate_bytes_per_s,
        prepare_s=record.prepare.mean_s,
        least_write_s=_seen(record.write),
        backlog_share=_backlog_share(queue, pair),
        first_ack_s=_seen(record.first),
        train_bytes_per_s=record.trains.bytes_per_s,
        rate_before_bytes_per_s=record.rate_before_bytes_per_s,
        receive_s=record.receive_cost_s,
    )


def _seen(times: FrameTimes) -> float | None:
    return times.least_s if times.num_frames else None
