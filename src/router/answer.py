"""The answer to one request while it grows: token deltas in, text deltas out, everything counted.

Invariants: a choice says nothing after its finish reason; text ends before a stop token or a stop
string; ``usage`` counts exactly the tokens up to each choice's end, whatever the node computed
beyond a stop string. No I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pdcore.errors import InternalError
from pdcore.generation import FinishReason, TokenDelta, Usage
from router.detokenizer import Detokenizer
from router.stop_strings import StopScanner
from router.text import ModelText


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text of one choice, perhaps none yet. ``finish_reason`` comes with the last one.

    ``token_ids`` are the tokens that arrived with it; their text may be part of a later delta.
    """

    choice: int
    text: str
    finish_reason: FinishReason | None = None
    token_ids: tuple[int, ...] = ()


class ChoiceText:
    """One choice. Stop strings are looked for only in the text after ``min_tokens`` tokens."""

    def __init__(
        self, choice: int, detokenizer: Detokenizer, stops: Sequence[str], min_tokens: int = 0
    ) -> None:
        self.num_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.stopped_by_string = False
        self._choice = choice
        self._detokenizer = detokenizer
        self._scanner = StopScanner(stops)
        self._min_tokens = min_tokens

    def push(self, delta: TokenDelta) -> TextDelta:
        """The text that ``delta`` makes certain. Must not be called after the finish."""
        assert self.finish_reason is None, "a finished choice takes no more tokens"
        pieces: list[str] = []
        for num_taken, token_id in enumerate(delta.token_ids, 1):
            self.num_tokens += 1
            pieces.append(self._scan(self._detokenizer.push(token_id)))
            if self.stopped_by_string:
                return self._finish(pieces, FinishReason.STOP, delta.token_ids[:num_taken])
        if delta.finish_reason is None:
            return TextDelta(self._choice, "".join(pieces), None, delta.token_ids)
        self.num_tokens += delta.finish_reason is FinishReason.STOP  # the stop token, not shown
        pieces.append(self._scan(self._detokenizer.flush()))
        if not self.stopped_by_string:
            pieces.append(self._scanner.flush())
        return self._finish(pieces, delta.finish_reason, delta.token_ids)

    def _scan(self, piece: str) -> str:
        if self.num_tokens <= self._min_tokens:
            return piece
        scanned = self._scanner.push(piece)
        self.stopped_by_string = scanned.found
        return scanned.text

    def _finish(
        self, pieces: list[str], reason: FinishReason, token_ids: tuple[int, ...]
    ) -> TextDelta:
        self.finish_reason = FinishReason.STOP if self.stopped_by_string else reason
        return TextDelta(self._choice, "".join(pieces), self.finish_reason, token_ids)


class Answer:
    """All choices of one request."""

    def __init__(
        self, text: ModelText, num_choices: int, stops: Sequence[str] = (), min_tokens: int = 0
    ) -> None:
        self._choices = [
            ChoiceText(index, text.detokenizer(), stops, min_tokens) for index in range(num_choices)
        ]

    def push(self, delta: TokenDelta) -> TextDelta | None:
        """None for what comes after a choice's end. Raises InternalError for an unknown choice."""
        if delta.choice >= len(self._choices):
            raise InternalError(f"the decode node sent tokens of choice {delta.choice}")
        choice = self._choices[delta.choice]
        return None if choice.finish_reason is not None else choice.push(delta)

    def usage(self, reported: Usage) -> Usage:
        """What the client is told, checked against what the decode node counted.

        Raises InternalError when tokens or the end of a choice are missing: better no answer than
        half of one.
        """
        unfinished = [i for i, choice in enumerate(self._choices) if choice.finish_reason is None]
        if unfinished:
            raise InternalError(f"the decode node left choices {unfinished} unfinished")
        num_tokens = sum(choice.num_tokens for choice in self._choices)
        cut_short = any(choice.stopped_by_string for choice in self._choices)
        if num_tokens > reported.completion_tokens or not (
            cut_short or num_tokens == reported.completion_tokens
        ):
            raise InternalError(
                f"the decode node counted {reported.completion_tokens} tokens, {num_tokens} arrived"
            )
        return Usage(reported.prompt_tokens, num_tokens, reported.cached_tokens)
