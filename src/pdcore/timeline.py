"""One node's part of a request's timeline: named spans since the request arrived here.

Spans are durations and offsets of this node's own monotonic clock; two hosts' clocks are never
compared. ``clock_s`` says when the request arrived, for the laboratory, whose nodes all run on one
machine. The router joins the parts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from pdwire.v1.generation_pb2 import NodeTimeline, Span, TransferReport


class TimelineRecorder:
    """Records spans of one request; cheap enough to be always on."""

    def __init__(self, node: str) -> None:
        self._node = node
        self.arrived_s = monotonic()
        self._spans: list[Span] = []
        self.transfer: TransferReport | None = None

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        start_s = monotonic()
        try:
            yield
        finally:
            self.add(name, start_s, monotonic())

    def add(self, name: str, start_s: float, end_s: float) -> None:
        """Record a span from two readings of ``time.monotonic``."""
        start = start_s - self.arrived_s
        self._spans.append(Span(name=name, start_s=start, duration_s=end_s - start_s))

    def to_proto(self) -> NodeTimeline:
        return NodeTimeline(
            node=self._node, spans=self._spans, transfer=self.transfer, clock_s=self.arrived_s
        )
