"""R, B and o of a path, from what was seen of it: the best evidence counts.

R is the smallest round trip that anything made. Every rate that was seen is a lower bound of B, so
the largest counts: the pair's own, this transfer's, and that of lone frames, whose acknowledgement
came after R + S/B + o. What their time leaves unexplained is software.
"""

from dataclasses import dataclass

from kvtransfer.path_model import Path
from kvtransfer.send_record import SAME_SIZE, FrameTimes, SendRecord

# Less than this cannot be told from the noise of two schedulers.
LEAST_LINE_S = 1e-4
# Of copies and checksums at both ends, where frames of another size were measured (docs/results).
COST_S_PER_BYTE = 2.4e-9
RECEIVER_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Evidence:
    """``rtt_s``, ``rate_bytes_per_s``: of the pair, None while nothing is known. ``own_...``: page
    bytes over the duration of this transfer. ``send_cost_s`` is of one frame of ``frame_bytes``."""

    frame_bytes: float
    own_rate_bytes_per_s: float
    rtt_s: float | None
    rate_bytes_per_s: float | None
    send_cost_s: float
    lone: FrameTimes


def evidence_of(
    record: SendRecord,
    *,
    frame_bytes: float,
    own_rate_bytes_per_s: float,
    rtt_s: float | None,
    rate_bytes_per_s: float | None,
) -> Evidence:
    """The least write is one that the transport took at once: the others may have waited for it."""
    least_write_s = record.write.least_s if record.write.num_frames else 0.0
    return Evidence(
        frame_bytes=frame_bytes,
        own_rate_bytes_per_s=own_rate_bytes_per_s,
        rtt_s=rtt_s,
        rate_bytes_per_s=rate_bytes_per_s,
        send_cost_s=record.prepare.mean_s + least_write_s,
        lone=record.lone,
    )


def path_from(seen: Evidence) -> Path:
    """Without any round trip seen, R is 0 and the rates tell all."""
    rtt_s = seen.rtt_s or 0.0
    cost_s = seen.send_cost_s / (1 - RECEIVER_SHARE)
    rate = max(seen.own_rate_bytes_per_s, seen.rate_bytes_per_s or 0.0)
    lone = seen.lone
    if lone.num_frames and seen.rtt_s is not None:
        lone_cost_s = cost_s * min(1.0, lone.frame_bytes / seen.frame_bytes)
        line_s = max(lone.least_s - rtt_s - lone_cost_s, LEAST_LINE_S)
        rate = max(rate, lone.frame_bytes / line_s)
    if lone.num_frames and lone.frame_bytes > SAME_SIZE * seen.frame_bytes:
        cost_s = max(cost_s, lone.mean_s - rtt_s - lone.frame_bytes / rate)
    return Path(rtt_s, rate, cost_s, RECEIVER_SHARE * cost_s)


def with_frames_of(path: Path, frame_bytes: float, other_bytes: float) -> Path:
    """``path`` for frames of another size: a part of what a frame costs grows with its bytes."""
    per_byte_s = min(COST_S_PER_BYTE, path.frame_cost_s / frame_bytes)
    cost_s = path.frame_cost_s + per_byte_s * (other_bytes - frame_bytes)
    return Path(path.rtt_s, path.link_bytes_per_s, cost_s, RECEIVER_SHARE * cost_s)
