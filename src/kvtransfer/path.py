"""What one pair knows of its path: round trip and rate, kept between transfers. No I/O.

Every transfer of the pair, in any mode, tells what it sends and what arrives; the pair itself tells
how long its pings took. ``target_bytes``, twice what the path holds, is what ``auto`` keeps in
flight (``window``).
"""

from kvtransfer.delivery_rate import DeliveryRate, Mark
from kvtransfer.round_trip import Finding, Ping, RoundTrip

GAIN = 2.0  # how many times what the path holds is to be in flight
NARROW = 0.25  # the same while the round trip is in doubt: so little that a queue of it is short
SLOWER = 0.8  # than the best rate since the round trip was confirmed: does it still hold?
# A rate is measured over the time that a full flight takes, and believed for a while if it is not
# seen again. On a short path the two programs need longer than the path.
SPAN_ROUND_TRIPS, LEAST_SPAN_S = 2, 0.1
HORIZON_ROUND_TRIPS, LEAST_HORIZON_S = 6, 0.3


class PathEstimator:
    """``is_lossy``: packets are lost though nothing queues; set by who knows from the kernel."""

    def __init__(self) -> None:
        self.in_flight_bytes = 0
        self.is_lossy = False
        self._num_in_flight = 0  # frames
        self._peak_bytes = self._peak_frames = 0  # in flight since the last ping came back
        self._best_rate = 0.0  # since the round trip was last confirmed
        self._round_trip = RoundTrip()
        self._rate = DeliveryRate()

    @property
    def rtt_s(self) -> float | None:
        return self._round_trip.seconds

    @property
    def least_rtt_s(self) -> float | None:
        """Of all pings since the path was last found longer: the least that was queued before."""
        return self._round_trip.least_s

    @property
    def rate_bytes_per_s(self) -> float | None:
        """Payload bytes, all transfers of the pair together."""
        highest, latest = self._rate.bytes_per_s, self._rate.latest_bytes_per_s
        if self.is_in_doubt and highest is not None and latest is not None:
            return min(highest, latest)
        return highest

    @property
    def is_in_doubt(self) -> bool:
        """Whether the flight is to be narrow, to find out if the path has become longer."""
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
        self._rate.answered(rtt_s)
        was_in_doubt = self.is_in_doubt
        finding = self._round_trip.on_ping(self._ping(rtt_s), now)
        # Which rate to believe depends on how a doubt is decided: until then none is forgotten.
        if self.is_in_doubt and not was_in_doubt:
            self._rate.hold()
        elif was_in_doubt and not self.is_in_doubt:
            self._rate.pause()
            self._rate.release(forgets=finding is Finding.AS_BEFORE)
        best = self._best_rate if finding is Finding.NOTHING else 0.0
        self._best_rate = max(best, self._rate.bytes_per_s or 0.0)
        self._peak_bytes, self._peak_frames = self.in_flight_bytes, self._num_in_flight

    def sent(self, nbytes: int, *, is_limited: bool = False, now: float) -> Mark:
        """A frame is counted as in flight; its mark is wanted when it is acknowledged.

        ``is_limited``: its sender is bound to send less than the path might take.
        """
        if is_limited or self.is_in_doubt:
            self._rate.pause()
        mark = self._rate.sent(is_first=not self._num_in_flight, now=now)
        self._num_in_flight += 1
        self.in_flight_bytes += nbytes
        self._peak_bytes = max(self._peak_bytes, self.in_flight_bytes)
        self._peak_frames = max(self._peak_frames, self._num_in_flight)
        return mark

    def delivered(self, mark: Mark, nbytes: int, *, now: float) -> None:
        """The frame was acknowledged."""
        self._ended(nbytes)
        rtt_s = self.rtt_s or 0.0
        self._rate.delivered(
            mark,
            nbytes,
            span_s=max(LEAST_SPAN_S, SPAN_ROUND_TRIPS * rtt_s),
            horizon_s=max(LEAST_HORIZON_S, HORIZON_ROUND_TRIPS * rtt_s),
            now=now,
        )

    def withdrawn(self, nbytes: int, num_frames: int) -> None:
        """Frames of a stream that is gone: whether they arrived, nobody knows."""
        self._ended(nbytes, num_frames)

    def nothing_to_send(self, *, now: float) -> None:
        """The window has room, and no transfer of the pair has a page that could leave."""
        self._rate.pause()

    def _ended(self, nbytes: int, num_frames: int = 1) -> None:
        self.in_flight_bytes -= nbytes
        self._num_in_flight -= num_frames
        assert self.in_flight_bytes >= 0 and self._num_in_flight >= 0, "ended more than was sent"

    def _ping(self, rtt_s: float) -> Ping:
        """With what was in flight since the last one. A frame alone is little: nothing narrower
        can be sent."""
        rate, held = self.rate_bytes_per_s, self.held_bytes
        if rate is None or held is None:
            return Ping(rtt_s, is_narrow=not self._peak_frames)
        return Ping(
            rtt_s,
            queue_s=self._peak_bytes / rate,
            is_narrow=self._peak_frames <= 1 or self._peak_bytes <= NARROW * held,
            is_slower=rate < SLOWER * self._best_rate,
        )
