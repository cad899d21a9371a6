"""A condition: all that two arms must share so that their difference is the arms' own."""

from dataclasses import dataclass, replace

from pdlab.quantities import format_bits_per_s, format_bytes, format_seconds
from pdlab.records import Cell, LinkRecord, TransferRecord


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """Sizes are 0 for serving: its requests have the sizes of the workload."""

    kind: str
    rtt_s: float
    rate_bps: float  # 0: as fast as it goes
    loss: float
    jitter_s: float
    queue_bytes: int  # follows the round trip unless set, so it is not said; 0: unknown
    buffers: str
    congestion: str
    slow_start_after_idle: bool
    metrics_save: bool
    page_bytes: int
    payload_bytes: int
    concurrency: int

    def __str__(self) -> str:
        return f"{format_seconds(self.rtt_s)} RTT, {self.without_rtt}"

    @property
    def at_any_distance(self) -> "Condition":
        """What the points of a line over RTT share."""
        return replace(self, rtt_s=0.0, queue_bytes=0)

    @property
    def without_rtt(self) -> str:
        return f"{rate_words(self.rate_bps)}, {self.without_rtt_and_rate}"

    @property
    def without_rtt_and_rate(self) -> str:
        """What is as usual is not said: a TUN link, large buffers, requests alone."""
        words = [
            f"{self.kind} link" if self.kind != "tun" else "",
            f"{100 * self.loss:g} % loss" if self.loss else "",
            f"{format_seconds(self.jitter_s)} jitter" if self.jitter_s else "",
            f"{self.buffers} buffers" if self.buffers != "large" else "",
            self.congestion,
            "" if self.slow_start_after_idle else "no slow start after idle",
            "TCP metrics saved" if self.metrics_save else "",
            f"page {format_bytes(self.page_bytes)}" if self.page_bytes else "",
            format_bytes(self.payload_bytes) if self.payload_bytes else "",
            f"{self.concurrency} at once" if self.concurrency > 1 else "",
        ]
        return ", ".join(word for word in words if word)


def rate_words(rate_bps: float | None) -> str:
    return format_bits_per_s(rate_bps) if rate_bps else "unlimited rate"


def condition_of(link: LinkRecord, *, page: int = 0, payload: int = 0, at_once: int) -> Condition:
    return Condition(
        kind=link.kind,
        rtt_s=link.rtt_s,
        rate_bps=link.rate_bps or 0.0,
        loss=link.loss,
        jitter_s=link.jitter_s,
        queue_bytes=link.queue_bytes or 0,
        buffers=link.buffers,
        congestion=link.congestion,
        slow_start_after_idle=link.slow_start_after_idle,
        metrics_save=link.metrics_save,
        page_bytes=page,
        payload_bytes=payload,
        concurrency=at_once,
    )


def condition_of_cell(record: TransferRecord, cell: Cell) -> Condition:
    return condition_of(
        record.link[cell.link],
        page=cell.page_bytes,
        payload=cell.payload_bytes,
        at_once=cell.concurrency,
    )
