"""R, B and o of a path, from what was seen of it: the best evidence counts.

R is the pair's: the smallest round trip of late. B is the largest rate that was seen: the pair's,
this transfer's, and that of lone frames, whose acknowledgement came after R + S/B + o. What their
time leaves unexplained is software.
"""

from dataclasses import dataclass

from kvtransfer.path_model import Path
from kvtransfer.send_record import SAME_SIZE, FrameTimes, SendRecord

# Less than this cannot be told from the noise of two schedulers.
LEAST_LINE_S = 1e-4
# Software that alone explains a rate, which was not seen before, hides how fast the line is.
SURELY_MORE = 1.1
EXPLAINS = 0.95
HIDDEN = 2.0
# Of copies and checksums at both ends, where frames of another size were measured (docs/results).
COST_S_PER_BYTE = 2.4e-9
RECEIVER_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Evidence:
    """``rtt_s`` is the pair's; ``pair_bytes_per_s`` its rate before this transfer and after it.
    None, 0.0: not known. ``train_bytes_per_s``: of this transfer's acknowledgements.
    ``send_cost_s``: of one frame."""

    page_bytes: int
    duration_s: float
    frame_bytes: float
    rtt_s: float | None
    pair_bytes_per_s: tuple[float, float]
    train_bytes_per_s: float
    send_cost_s: float
    lone: FrameTimes


def send_cost_s(record: SendRecord) -> float:
    """The least write is one that the transport took at once: the others may have waited for it."""
    return record.prepare.mean_s + (record.write.least_s if record.write.num_frames else 0.0)


def path_from(seen: Evidence) -> Path:
    """Without any round trip seen, R is 0 and the rates tell all."""
    rtt_s = seen.rtt_s or 0.0
    cost_s = seen.send_cost_s / (1 - RECEIVER_SHARE)
    streamed = seen.page_bytes / max(seen.duration_s - rtt_s, LEAST_LINE_S)
    rate = max(*seen.pair_bytes_per_s, seen.train_bytes_per_s, streamed, _lone_rate(seen, cost_s))
    if seen.lone.num_frames and seen.lone.frame_bytes > SAME_SIZE * seen.frame_bytes:
        cost_s = max(cost_s, seen.lone.mean_s - rtt_s - seen.lone.frame_bytes / rate)
    is_new = seen.pair_bytes_per_s[0] * SURELY_MORE < rate
    if is_new and RECEIVER_SHARE * cost_s * rate > EXPLAINS * seen.frame_bytes:
        rate *= HIDDEN
    return Path(rtt_s, rate, cost_s, RECEIVER_SHARE * cost_s)


def with_frames_of(path: Path, frame_bytes: float, other_bytes: float) -> Path:
    """``path`` for frames of another size: a part of what a frame costs grows with its bytes."""
    per_byte_s = min(COST_S_PER_BYTE, path.frame_cost_s / frame_bytes)
    cost_s = path.frame_cost_s + per_byte_s * (other_bytes - frame_bytes)
    return Path(path.rtt_s, path.link_bytes_per_s, cost_s, RECEIVER_SHARE * cost_s)


def _lone_rate(seen: Evidence, cost_s: float) -> float:
    if not seen.lone.num_frames or seen.rtt_s is None:
        return 0.0
    lone_cost_s = cost_s * min(1.0, seen.lone.frame_bytes / seen.frame_bytes)
    line_s = max(seen.lone.least_s - seen.rtt_s - lone_cost_s, LEAST_LINE_S)
    return seen.lone.frame_bytes / line_s
