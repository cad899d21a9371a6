"""Reads the clock for one request: the router's part of its timeline, and its metrics."""

import asyncio
from collections.abc import Iterable
from time import monotonic

from pdcore.generation import TokenDelta, Usage
from pdcore.timeline import TimelineRecorder
from router.metrics import RouterMetrics


class RequestWatch:
    """Starts when the request arrives. Spans: ``prepare``, ``first_token``, ``generate``."""

    def __init__(self, metrics: RouterMetrics, node: str) -> None:
        self.timeline = TimelineRecorder(node)
        self.has_tokens = asyncio.Event()
        self._metrics = metrics
        self._started_s = self.timeline.arrived_s
        self._first_token_s: float | None = None
        self._last_token_s: dict[int, float] = {}

    def left_s(self, timeout_s: float | None) -> float | None:
        """What is left of a deadline that counts from the arrival; TimeoutError when it passed."""
        if timeout_s is None:
            return None
        left_s = timeout_s - (monotonic() - self.timeline.arrived_s)
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def started(self) -> None:
        """The request is understood and goes to the nodes now."""
        self._started_s = monotonic()
        self.timeline.add("prepare", self.timeline.arrived_s, self._started_s)

    def on_tokens(self, deltas: Iterable[TokenDelta]) -> None:
        now = monotonic()
        if self._first_token_s is None:
            self._first_token_s = now
            self.has_tokens.set()
            self.timeline.add("first_token", self._started_s, now)
            self._metrics.first_token_s.observe(now - self.timeline.arrived_s)
        for delta in deltas:
            before = self._last_token_s.get(delta.choice)
            if before is not None and delta.token_ids:
                gap_s = (now - before) / len(delta.token_ids)
                for _ in delta.token_ids:
                    self._metrics.inter_token_s.observe(gap_s)
            self._last_token_s[delta.choice] = now

    def finished(self, usage: Usage) -> None:
        now = monotonic()
        if self._first_token_s is not None:
            self.timeline.add("generate", self._first_token_s, now)
        self._metrics.request_s.observe(now - self.timeline.arrived_s)
        self._metrics.prompt_tokens.inc(usage.prompt_tokens)
        self._metrics.generated_tokens.inc(usage.completion_tokens)
