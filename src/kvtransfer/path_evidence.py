"""R, B and o of a path, from what was seen of it.

R is the least that the kernel's TCP saw; a ping took longer, since two event loops are on its way,
and so does every frame. B is the largest rate that was seen: the pair's, that of this transfer's
acknowledgements, and that of frames before which nothing was in flight: they came back after
R + S/B + o. What the time of lone frames leaves unexplained is software.
"""

from dataclasses import dataclass

from kvtransfer.path_model import Path
from kvtransfer.send_record import SAME_SIZE, FrameTimes, SendRecord

# Less than this cannot be told from the noise of two schedulers.
LEAST_LINE_S = 1e-4
# A write that has to wait for nothing takes at most so many times as long as preparing its bytes.
WRITE_OF_PREPARE = 3.0
# TCP remembers its least round trip for minutes. A ping that takes so much longer is not slow by
# the software of two busy machines alone: the path has become longer.
LONGER = 2.0
MOST_PING_SOFTWARE_S = 0.02
# A frame that finds TCP idle takes at most so many round trips more: pacing, or slow start.
MOST_RESTART = 4.0
# Software that alone explains a rate, which was not seen before, or buffers that do, hide how fast
# the line is.
SURELY_MORE = 1.1
EXPLAINS = 0.95
FULL = 0.9
HIDDEN = 2.0
MOSTLY = 0.5
OVERLAPPED = 0.8  # of what a frame takes on a full line is the most that software may take
# Of copies and checksums at both ends, where frames of another size were measured (docs/results).
COST_S_PER_BYTE = 2.4e-9
RECEIVER_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Evidence:
    """None, 0.0: not known. ``least_ping_s``: of all pings; ``ping_rtt_s`` of late, when our own
    bytes may have queued before each. ``backlog_share``: of the looks at TCP, those that found it
    with more than it could send. ``pair_bytes_per_s``: the pair's rate before and after this
    transfer; ``train_bytes_per_s``: that of its acknowledgements. ``tcp_window_bytes``: what the
    kernel's buffers let its connections have in flight. Costs are of one frame."""

    page_bytes: int
    duration_s: float
    frame_bytes: float
    ping_rtt_s: float | None
    tcp_rtt_s: float | None
    pair_bytes_per_s: tuple[float, float]
    train_bytes_per_s: float
    tcp_window_bytes: float
    send_cost_s: float
    receive_cost_s: float
    first: FrameTimes
    lone: FrameTimes
    least_ping_s: float | None = None
    backlog_share: float | None = None

    @property
    def rtt_s(self) -> float:
        ping_s, tcp_s = self.ping_rtt_s, self.tcp_rtt_s
        if ping_s is None or tcp_s is None:
            return ping_s or tcp_s or 0.0
        is_longer = ping_s > LONGER * tcp_s + MOST_PING_SOFTWARE_S
        return ping_s if is_longer else min(ping_s, tcp_s)

    @property
    def message_cost_s(self) -> float:
        """What both ends spend on a message however small it is: the software in a ping."""
        if self.ping_rtt_s is None:
            return 0.0
        least_s = self.ping_rtt_s if self.least_ping_s is None else self.least_ping_s
        return max(0.0, min(least_s, self.ping_rtt_s) - self.rtt_s)

    @property
    def is_line_full(self) -> bool:
        """The path was slower than both programs, as the kernel saw."""
        return (self.backlog_share or 0.0) > MOSTLY


def send_cost_s(record: SendRecord) -> float:
    """The least write is one that the transport took at once, unless each had to wait for it: then
    what preparing took tells what a write of so many bytes takes here."""
    prepare_s = record.prepare.mean_s
    least_write_s = min(record.write.least_s, WRITE_OF_PREPARE * prepare_s + LEAST_LINE_S)
    return prepare_s + (least_write_s if record.write.num_frames else 0.0)


@dataclass(frozen=True, slots=True)
class _Costs:
    """Of one frame, beside R and S/B."""

    send_s: float
    receive_s: float
    restart_s: float


def path_from(seen: Evidence) -> Path:
    """Without any round trip seen, R is 0 and the rates tell all."""
    rate = _rate(seen)
    costs = _costs(seen, rate)
    if _is_hidden(seen, costs, rate):
        rate *= HIDDEN
    return Path(seen.rtt_s, rate, costs.send_s + costs.receive_s, costs.receive_s, costs.restart_s)


def with_frames_of(path: Path, frame_bytes: float, other_bytes: float) -> Path:
    """``path`` for frames of another size: a part of what a frame costs grows with its bytes."""
    per_byte_s = min(COST_S_PER_BYTE, path.frame_cost_s / frame_bytes)
    cost_s = path.frame_cost_s + per_byte_s * (other_bytes - frame_bytes)
    share = path.receive_cost_s / path.frame_cost_s if path.frame_cost_s else RECEIVER_SHARE
    return Path(path.rtt_s, path.link_bytes_per_s, cost_s, share * cost_s)


def _costs(seen: Evidence, rate: float) -> _Costs:
    """Each end's is what it measured, and half of what neither could: that of any message.

    More than that again is TCP's, where there is a round trip for it to be slow by.
    """
    send_s, restart_s = seen.send_cost_s, 0.0
    receive_s = seen.receive_cost_s or send_s * RECEIVER_SHARE / (1 - RECEIVER_SHARE)
    if seen.lone.num_frames and seen.lone.frame_bytes > SAME_SIZE * seen.frame_bytes:
        line_s = seen.lone.frame_bytes / rate
        unknown_s = max(0.0, seen.lone.mean_s - seen.rtt_s - line_s - send_s - receive_s)
        most_s = seen.message_cost_s + send_s + receive_s
        restart_s = min(max(0.0, unknown_s - most_s), MOST_RESTART * seen.rtt_s)
        hidden_s = unknown_s - restart_s
    else:
        # Each end handled all frames one after the other within the transfer's time.
        frame_s = (seen.duration_s - seen.rtt_s) * seen.frame_bytes / seen.page_bytes
        if seen.is_line_full:
            frame_s = min(frame_s, OVERLAPPED * seen.frame_bytes / rate)
        hidden_s = max(0.0, min(seen.message_cost_s, 2 * (frame_s - max(send_s, receive_s))))
    return _Costs(send_s + hidden_s / 2, receive_s + hidden_s / 2, restart_s)


def _rate(seen: Evidence) -> float:
    """A few acknowledgements may come together: they count where the pair was not known before."""
    before, after = seen.pair_bytes_per_s
    train = seen.train_bytes_per_s if not before else 0.0
    streamed = seen.page_bytes / max(seen.duration_s - seen.rtt_s, LEAST_LINE_S)
    first = 0.0 if seen.is_line_full else _first_rate(seen)
    return max(after, train, streamed, first)


def _is_hidden(seen: Evidence, costs: _Costs, rate: float) -> bool:
    """Whether something else explains the rate, so that the line may be faster."""
    is_new = seen.pair_bytes_per_s[0] * SURELY_MORE < rate
    by_software = max(costs.send_s, costs.receive_s) * rate > EXPLAINS * seen.frame_bytes
    by_buffers = rate * seen.rtt_s > FULL * seen.tcp_window_bytes
    return not seen.is_line_full and (by_buffers or (is_new and by_software))


def _first_rate(seen: Evidence) -> float:
    """At least this; where the pair has not carried more, what any message costs is taken off."""
    first = seen.first
    if not first.num_frames or seen.ping_rtt_s is None:
        return 0.0
    size = min(1.0, first.frame_bytes / seen.frame_bytes)
    known_s = size * (seen.send_cost_s + seen.receive_cost_s)
    line_s = max(first.least_s - seen.rtt_s - known_s, LEAST_LINE_S)
    if first.frame_bytes / line_s > seen.pair_bytes_per_s[0]:
        line_s = max(line_s - seen.message_cost_s, LEAST_LINE_S)
    return first.frame_bytes / line_s
