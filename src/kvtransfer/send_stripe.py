"""One stripe of a transfer as its sender sees it: one stream at a time, its unacknowledged frames.

Invariant: ``acked_frames`` + unacknowledged frames = frames sent on the stream that is open.
"""

from collections import deque
from dataclasses import dataclass

from kvtransfer.delivery_rate import Mark
from kvtransfer.messages import PageRun, Reply
from pdcore.errors import ProtocolViolation


@dataclass(frozen=True, slots=True)
class OutgoingFrame:
    """``round_trip``: 1 for a frame that waited for no acknowledgement, else one more than that of
    the frame whose acknowledgement let it go. ``mark`` is what the pair's path wants back with its
    acknowledgement, and says when the frame was counted as in flight.
    """

    sequence: int
    run: PageRun
    nbytes: int
    round_trip: int
    mark: Mark

    @property
    def sent_s(self) -> float:
        return self.mark.sent_s


class SendStripe:
    def __init__(self) -> None:
        self.attempt = 0
        self.was_opened = False
        self.is_open = False
        self.is_heard = False  # the open stream has been answered
        self.has_handoff = False  # the handoff left on the open stream
        self.in_flight_bytes = 0
        self._acked_frames = 0
        self._acked_bytes = 0
        self._unacked: deque[OutgoingFrame] = deque()

    def open(self, attempt: int) -> None:
        assert not self.is_open, "the stripe's stream is open already"
        self.attempt = attempt
        self.was_opened = self.is_open = True
        self._acked_frames = self._acked_bytes = 0

    def close(self) -> list[OutgoingFrame]:
        """The stream is gone; the frames that it did not acknowledge, oldest first."""
        frames = list(self._unacked)
        self._unacked.clear()
        self.in_flight_bytes = 0
        self.is_open = self.is_heard = self.has_handoff = False
        return frames

    def send(self, run: PageRun, nbytes: int, round_trip: int, mark: Mark) -> OutgoingFrame:
        sequence = self._acked_frames + len(self._unacked)
        frame = OutgoingFrame(sequence, run, nbytes, round_trip, mark)
        self.in_flight_bytes += nbytes
        self._unacked.append(frame)
        return frame

    def acknowledge(self, reply: Reply) -> list[OutgoingFrame]:
        """The frames that ``reply`` newly acknowledges. Raises ProtocolViolation."""
        num_new = reply.acked_frames - self._acked_frames
        if not 0 <= num_new <= len(self._unacked) or reply.attempt > self.attempt:
            raise ProtocolViolation(
                f"acknowledges {reply.acked_frames} frames of attempt {reply.attempt}; before it"
                f" were {self._acked_frames} of {self._acked_frames + len(self._unacked)} sent"
                f" in attempt {self.attempt}"
            )
        frames = [self._unacked[index] for index in range(num_new)]
        if reply.acked_bytes != self._acked_bytes + sum(frame.nbytes for frame in frames):
            raise ProtocolViolation(
                f"acknowledges {reply.acked_bytes} bytes in {reply.acked_frames} frames, which"
                f" held {self._acked_bytes + sum(frame.nbytes for frame in frames)}"
            )
        for frame in frames:
            self._unacked.popleft()
            self.in_flight_bytes -= frame.nbytes
        self._acked_frames, self._acked_bytes = reply.acked_frames, reply.acked_bytes
        return frames
