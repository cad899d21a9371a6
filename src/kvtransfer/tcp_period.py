"""What all connections of a pair did together between two looks at the kernel's counters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from kvtransfer.tcp_sample import TcpSample

LIMITED = 0.2  # of the busy time: a buffer or a window was what held back
LOSSY = 1e-5  # of the bytes were sent again
QUEUED = 1.25  # times the least round trip: the line is full, losses are its queue's


@dataclass(frozen=True, slots=True)
class TcpPeriod:
    """Shares are of the time in which connections had something to send."""

    bytes_per_s: float
    busy_share: float  # of the period, for the busiest connection
    sndbuf_share: float
    rwnd_share: float
    resent_share: float  # of the acknowledged bytes
    rtt_ratio: float  # of the connection that carried most: now, to the least

    @classmethod
    def between(
        cls, before: Sequence[TcpSample], after: Sequence[TcpSample], seconds: float
    ) -> Self:
        """``before`` and ``after`` are of the same connections, in the same order."""
        pairs = list(zip(before, after, strict=True))
        busy = [new.busy_s - old.busy_s for old, new in pairs]
        acked = [new.bytes_acked - old.bytes_acked for old, new in pairs]
        sndbuf_s = sum(new.sndbuf_limited_s - old.sndbuf_limited_s for old, new in pairs)
        rwnd_s = sum(new.rwnd_limited_s - old.rwnd_limited_s for old, new in pairs)
        resent = sum(new.bytes_retransmitted - old.bytes_retransmitted for old, new in pairs)
        main = after[acked.index(max(acked))]
        return cls(
            bytes_per_s=sum(acked) / seconds,
            busy_share=max(busy) / seconds,
            sndbuf_share=_share(sndbuf_s, sum(busy)),
            rwnd_share=_share(rwnd_s, sum(busy)),
            resent_share=_share(resent, sum(acked)),
            rtt_ratio=_share(main.rtt_s, main.min_rtt_s),
        )

    @property
    def is_sndbuf_limited(self) -> bool:
        return self.sndbuf_share > LIMITED

    @property
    def is_rwnd_limited(self) -> bool:
        return self.rwnd_share > LIMITED

    @property
    def is_lossy(self) -> bool:
        return self.resent_share > LOSSY

    @property
    def has_queue(self) -> bool:
        return self.rtt_ratio > QUEUED


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
