"""Finds stop strings in text that arrives in pieces, and never lets a part of one out.

The result does not depend on how the text is cut: the match that *ends* first wins, of several that
end there the longest, and the text ends where it begins. What could still become a match (the
longest suffix that begins a stop string) is held back until it cannot, or until ``flush``.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scanned:
    """``text`` may go out now. After ``found`` nothing more does."""

    text: str
    found: bool = False


class StopScanner:
    """One choice's text against up to a few stop strings, none of them empty."""

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop string would end every text at once"
        self._stops = tuple(stops)
        self._held = ""

    def push(self, piece: str) -> Scanned:
        text = self._held + piece
        matches = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if matches:
            self._held = ""
            return Scanned(text[: min(matches)[1]], found=True)
        keep = self._first_possible_start(text)
        self._held = text[keep:]
        return Scanned(text[:keep])

    def flush(self) -> str:
        """The text is over: what was held back is no stop string after all."""
        held, self._held = self._held, ""
        return held

    def _first_possible_start(self, text: str) -> int:
        """Where the longest suffix begins that is a proper prefix of a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1)
        for start in range(max(0, len(text) - longest + 1), len(text)):
            if any(stop.startswith(text[start:]) for stop in self._stops):
                return start
        return len(text)
