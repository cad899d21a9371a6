"""How much the next frame of a transfer holds. A policy: no I/O, no clock, no pages.

A fixed mode's frames are all of one shape. ``auto``'s are as large as is good for the two programs,
but take the line no longer than a part of its round trip, so that acknowledgements come smoothly
and nobody waits long behind a frame; and the last ones are small enough for every connection to get
its share.
"""

from kvtransfer.limits import FrameShape, SendLimits, filled
from kvtransfer.path import PathEstimator
from pdcore.kv_layout import KvLayout

LEAST_FRAME_BYTES = 256 * 2**10  # below it a frame costs as much as its bytes
FRAME_S = 0.008  # a frame may take that long to serve, even on a short path
ROUND_TRIP_SHARE = 0.25


class FrameSize:
    def __init__(self, limits: SendLimits, layout: KvLayout, path: PathEstimator) -> None:
        self._limits = limits
        self._layout = layout
        self._path = path

    def shape(self, left_bytes: int, num_stripes: int) -> FrameShape:
        """``left_bytes`` of the transfer have not left yet."""
        if not self._limits.is_adaptive:
            return self._limits.frame
        share = max(left_bytes // num_stripes, LEAST_FRAME_BYTES)
        return filled(min(self._for_path(), share), self._layout)

    def small_bytes(self) -> int:
        """A frame below it is held back while it might grow and others are in flight."""
        if not self._limits.is_adaptive:
            return self._limits.small_frame_bytes
        return self._for_path() // 2

    def _for_path(self) -> int:
        frame = self._limits.frame
        most = frame.pages * frame.layers * self._layout.layer_bytes
        rate = self._path.rate_bytes_per_s
        return most if rate is None else min(most, served_bytes(self._path.rtt_s or 0.0, rate))


def served_bytes(rtt_s: float, rate_bytes_per_s: float) -> int:
    """What the line may be busy with for one frame."""
    serving_s = max(FRAME_S, ROUND_TRIP_SHARE * rtt_s)
    return max(LEAST_FRAME_BYTES, int(serving_s * rate_bytes_per_s))
