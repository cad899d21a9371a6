"""R, B and o of a path, from what was seen of it.

R is the least that the kernel's TCP saw; a ping took longer, since two event loops are on its way,
and so does every frame. B is the largest rate that was seen: the pair's, that of this transfer's
acknowledgements, and that of lone frames, which came back after R + S/B + o. What their time leaves
unexplained is software.
"""

from dataclasses import dataclass

from kvtransfer.path_model import Path
from kvtransfer.send_record import SAME_SIZE, FrameTimes, SendRecord

# Less than this cannot be told from the noise of two schedulers.
LEAST_LINE_S = 1e-4
# A ping that takes so much longer than TCP's least round trip is not slow by software alone.
MOST_PING_SOFTWARE_S = 5e-3
# Software that alone explains a rate, which was not seen before, hides how fast the line is.
SURELY_MORE = 1.1
EXPLAINS = 0.95
HIDDEN = 2.0
# Of copies and checksums at both ends, where frames of another size were measured (docs/results).
COST_S_PER_BYTE = 2.4e-9
RECEIVER_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Evidence:
    """None, 0.0: not known. ``pair_bytes_per_s``: the pair's rate before and after this transfer;
    ``train_bytes_per_s``: that of its acknowledgements. Costs are of one frame."""

    page_bytes: int
    duration_s: float
    frame_bytes: float
    ping_rtt_s: float | None
    tcp_rtt_s: float | None
    pair_bytes_per_s: tuple[float, float]
    train_bytes_per_s: float
    send_cost_s: float
    receive_cost_s: float
    lone: FrameTimes

    @property
    def rtt_s(self) -> float:
        ping_s, tcp_s = self.ping_rtt_s, self.tcp_rtt_s
        if ping_s is None or tcp_s is None:
            return ping_s or tcp_s or 0.0
        return min(ping_s, tcp_s) if ping_s - tcp_s < MOST_PING_SOFTWARE_S else ping_s

    @property
    def message_cost_s(self) -> float:
        """What both ends spend on a message however small it is: the software in a ping."""
        return self.ping_rtt_s - self.rtt_s if self.ping_rtt_s is not None else 0.0


def send_cost_s(record: SendRecord) -> float:
    """The least write is one that the transport took at once: the others may have waited for it."""
    return record.prepare.mean_s + (record.write.least_s if record.write.num_frames else 0.0)


def path_from(seen: Evidence) -> Path:
    """Without any round trip seen, R is 0 and the rates tell all."""
    rtt_s, lone = seen.rtt_s, seen.lone
    streamed = seen.page_bytes / max(seen.duration_s - rtt_s, LEAST_LINE_S)
    rate = max(*seen.pair_bytes_per_s, seen.train_bytes_per_s, streamed, _lone_rate(seen))
    send_s, receive_s = _costs(seen)
    if lone.num_frames and lone.frame_bytes > SAME_SIZE * seen.frame_bytes:
        unexplained_s = lone.mean_s - rtt_s - lone.frame_bytes / rate - send_s - receive_s
        receive_s += max(0.0, unexplained_s) / 2
        send_s += max(0.0, unexplained_s) / 2
    is_new = seen.pair_bytes_per_s[0] * SURELY_MORE < rate
    if is_new and max(send_s, receive_s) * rate > EXPLAINS * seen.frame_bytes:
        rate *= HIDDEN
    return Path(rtt_s, rate, send_s + receive_s, receive_s)


def with_frames_of(path: Path, frame_bytes: float, other_bytes: float) -> Path:
    """``path`` for frames of another size: a part of what a frame costs grows with its bytes."""
    per_byte_s = min(COST_S_PER_BYTE, path.frame_cost_s / frame_bytes)
    cost_s = path.frame_cost_s + per_byte_s * (other_bytes - frame_bytes)
    share = path.receive_cost_s / path.frame_cost_s if path.frame_cost_s else RECEIVER_SHARE
    return Path(path.rtt_s, path.link_bytes_per_s, cost_s, share * cost_s)


def _costs(seen: Evidence) -> tuple[float, float]:
    """Of the sender and the receiver. One that says nothing has its usual share."""
    receive_s = seen.receive_cost_s or seen.send_cost_s * RECEIVER_SHARE / (1 - RECEIVER_SHARE)
    message_s = seen.message_cost_s / 2
    return seen.send_cost_s + message_s, receive_s + message_s


def _lone_rate(seen: Evidence) -> float:
    """Only what is known to be software is taken off."""
    lone = seen.lone
    if not lone.num_frames or seen.ping_rtt_s is None:
        return 0.0
    known_s = seen.send_cost_s + seen.receive_cost_s
    known_s *= min(1.0, lone.frame_bytes / seen.frame_bytes)
    line_s = lone.least_s - seen.ping_rtt_s - known_s
    return lone.frame_bytes / max(line_s, LEAST_LINE_S)
