"""What one pair knows of its path: round trip and rate, kept between transfers. No I/O.

Every transfer of the pair, in any mode, tells what it sends and what arrives; the pair itself tells
how long its pings took. ``target_bytes``, twice what the path holds, is what ``auto`` keeps in
flight (``window``).
"""

import math

from kvtransfer.delivery_rate import DeliveryRate, Mark
from kvtransfer.round_trip import RoundTrip

GAIN = 2.0  # how many times what the path holds is to be in flight
NARROW = 0.75  # the same while the round trip is in doubt: no queue of ours
# How long a rate is believed that is not seen again.
HORIZON_ROUND_TRIPS = 8
LEAST_HORIZON_S = 0.4


class PathEstimator:
    def __init__(self) -> None:
        self.in_flight_bytes = 0
        self._num_in_flight = 0  # frames
        self._peak_bytes = 0  # in flight since the last ping came back
        self._filled_s = float("-inf")  # when we last filled the path
        self._round_trip = RoundTrip()
        self._rate = DeliveryRate()

    @property
    def rtt_s(self) -> float | None:
        return self._round_trip.seconds

    @property
    def rate_bytes_per_s(self) -> float | None:
        """Payload bytes, all transfers of the pair together."""
        highest, latest = self._rate.bytes_per_s, self._rate.latest_bytes_per_s
        if self.is_in_doubt and highest is not None and latest is not None:
            return min(highest, latest)
        return highest

    @property
    def is_in_doubt(self) -> bool:
        """Whether the flight is kept narrow to find out if the path has become longer."""
        return self._round_trip.is_doubted

    @property
    def is_settled(self) -> bool:
        """Whether the rate has stopped growing, once."""
        return self._rate.is_settled

    @property
    def held_bytes(self) -> float | None:
        """What the path holds without a queue: round trip times rate."""
        rtt_s, rate = self.rtt_s, self.rate_bytes_per_s
        return None if rtt_s is None or rate is None else rtt_s * rate

    @property
    def target_bytes(self) -> int | None:
        """What is to be in flight, before any floor and cap; None while the path is unknown."""
        held = self.held_bytes
        return None if held is None else int(GAIN * held)

    def on_ping(self, rtt_s: float, *, now: float) -> None:
        """A small message came back after ``rtt_s``. What may be sent may have changed."""
        rate = self._rate.bytes_per_s
        queue_s = self._peak_bytes / rate if rate else 0.0
        is_clear = now - rtt_s > self._filled_s
        was_in_doubt = self.is_in_doubt
        self._round_trip.on_ping(rtt_s, is_clear=is_clear, queue_s=queue_s, now=now)
        self._peak_bytes = self.in_flight_bytes
        if was_in_doubt or self.is_in_doubt:
            self._rate.pause(now)

    def sent(self, nbytes: int, *, is_limited: bool = False, now: float) -> Mark:
        """A frame is counted as in flight; its mark is wanted when it is acknowledged.

        ``is_limited``: its sender is bound to send less than the path might take.
        """
        if is_limited or self.is_in_doubt:
            self._rate.pause(now)
        mark = self._rate.sent(is_first=not self._num_in_flight, now=now)
        self._num_in_flight += 1
        self.in_flight_bytes += nbytes
        self._peak_bytes = max(self._peak_bytes, self.in_flight_bytes)
        self._watch_fill(now)
        return mark

    def delivered(self, mark: Mark, nbytes: int, *, now: float) -> None:
        """The frame was acknowledged."""
        self._watch_fill(now)
        self._ended(nbytes)
        self._rate.delivered(mark, nbytes, horizon_s=self._horizon_s(), now=now)

    def withdrawn(self, nbytes: int, num_frames: int) -> None:
        """Frames of a stream that is gone: whether they arrived, nobody knows."""
        self._ended(nbytes, num_frames)

    def nothing_to_send(self, *, now: float) -> None:
        """The window has room, and no transfer of the pair has a page that could leave."""
        self._rate.pause(now)

    def _horizon_s(self) -> float:
        """Which rate to believe depends on how a doubt is decided: until then none is forgotten."""
        if self.is_in_doubt:
            return math.inf
        return max(LEAST_HORIZON_S, HORIZON_ROUND_TRIPS * (self.rtt_s or 0.0))

    def _ended(self, nbytes: int, num_frames: int = 1) -> None:
        self.in_flight_bytes -= nbytes
        self._num_in_flight -= num_frames
        assert self.in_flight_bytes >= 0 and self._num_in_flight >= 0, "ended more than was sent"

    def _watch_fill(self, now: float) -> None:
        held = self.held_bytes
        if held is None or self.in_flight_bytes > held:
            self._filled_s = now
