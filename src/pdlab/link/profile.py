"""What a link is asked to be: delay, rate, loss, jitter and queue; and how TCP on it is set.

Values only. ``rtt_s`` is shared equally by both ways; everything else holds for each way. The rate
counts packets as they lie on the wire, headers included: of a full one, 1448 of 1500 bytes are TCP
payload.
"""

from dataclasses import dataclass
from math import isfinite

from pdcore.errors import ConfigError
from pdlab.quantities import format_bits_per_s, format_bytes, format_seconds

MTU_BYTES = 1500
PAYLOAD_SHARE = 1448 / 1500  # TCP over IPv4 with timestamps
QUEUE_FLOOR_BYTES = 2**20
QUEUE_BDPS = 2  # bbr starts with up to 2.9 BDP in flight, so a queue of one would drop
MAX_IN_FLIGHT_BYTES = 2**30
MAX_RTT_S = 10.0


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """ConfigError when no link can be like this."""

    rtt_s: float = 0.0
    rate_bps: float | None = None
    """Bits per second on the wire; None: as fast as the machine can."""
    loss: float = 0.0
    """Share of packets lost, each way, each packet for itself."""
    jitter_s: float = 0.0
    """Round trips take ``rtt_s`` to ``rtt_s + jitter_s``; packets stay in order."""
    queue_bytes: int | None = None
    """Room before the line, then packets drop at the tail. None: see ``queue_room_bytes``."""

    def __post_init__(self) -> None:
        _within("rtt", self.rtt_s, 0, MAX_RTT_S, "s")
        _within("jitter", self.jitter_s, 0, MAX_RTT_S, "s")
        _within("loss", self.loss, 0, 1, "of all packets")
        if self.rate_bps is not None:
            _within("rate", self.rate_bps, 1e4, 1e11, "bit/s")
        if self.queue_bytes is not None:
            _within("queue", self.queue_bytes, MTU_BYTES, MAX_IN_FLIGHT_BYTES, "bytes")
        late_bytes = (self.rate_bps or 0.0) / 8 * self.jitter_s
        in_flight = self.bdp_bytes + late_bytes + self.queue_room_bytes
        if in_flight > MAX_IN_FLIGHT_BYTES:
            raise ConfigError(
                f"a link with {format_bytes(in_flight)} on its way is more than is held here, "
                f"{format_bytes(MAX_IN_FLIGHT_BYTES)}: it needs a lower rate, rtt or queue"
            )

    @property
    def bdp_bytes(self) -> float:
        """What is on its way on a full line for one round trip; 0 without a rate."""
        return (self.rate_bps or 0.0) / 8 * self.rtt_s

    @property
    def queue_room_bytes(self) -> int:
        """The queue as asked for, or the larger of 2 BDP and 1 MiB."""
        if self.queue_bytes is not None:
            return self.queue_bytes
        return max(round(QUEUE_BDPS * self.bdp_bytes), QUEUE_FLOOR_BYTES)

    def __str__(self) -> str:
        rate = "any rate" if self.rate_bps is None else format_bits_per_s(self.rate_bps)
        words = [f"rtt {format_seconds(self.rtt_s)}", rate]
        if self.loss:
            words.append(f"loss {100 * self.loss:.4g}%")
        if self.jitter_s:
            words.append(f"jitter {format_seconds(self.jitter_s)}")
        return ", ".join([*words, f"queue {format_bytes(self.queue_room_bytes)}"])


@dataclass(frozen=True, slots=True)
class TcpSettings:
    """How the kernel's TCP is set at both ends, where a link has ends of its own."""

    buffers: str = "large"
    """A key of ``BUFFERS``."""
    congestion: str | None = None
    """None: the machine's default."""
    slow_start_after_idle: bool = True
    metrics_save: bool = False
    """Whether a connection may start with what an earlier one learned of the path."""

    def __post_init__(self) -> None:
        if self.buffers not in BUFFERS:
            raise ConfigError(f"no TCP buffers {self.buffers!r}; there are: {', '.join(BUFFERS)}")

    def sysctls(self) -> dict[str, str]:
        """For a network namespace; the congestion control is set apart."""
        rmem, wmem = BUFFERS[self.buffers]
        return {
            "net.ipv4.tcp_rmem": rmem,
            "net.ipv4.tcp_wmem": wmem,
            "net.ipv4.tcp_slow_start_after_idle": str(int(self.slow_start_after_idle)),
            "net.ipv4.tcp_no_metrics_save": str(int(not self.metrics_save)),
        }


# Minimum, initial and largest size in bytes: of a receive buffer, of a send buffer.
BUFFERS = {
    "large": ("4096 1048576 268435456", "4096 1048576 268435456"),
    "stock": ("4096 131072 33554432", "4096 16384 4194304"),
}


def _within(what: str, value: float, least: float, most: float, unit: str) -> None:
    if not isfinite(value) or not least <= value <= most:
        raise ConfigError(
            f"link: {what} {value:g} {unit}: it must be from {least:g} to {most:.12g}"
        )
