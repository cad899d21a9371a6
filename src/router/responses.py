"""The JSON that clients get: OpenAI's response and chunk objects, built in one place.

The two endpoints differ in names and in where a choice's text stands, so each is a ``Shape``; usage
and our ``timeline`` look the same in both. Everything here is pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pdcore.generation import RequestId, Usage
from router.answer import TextDelta

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every object of one response repeats. ``created`` is Unix time in seconds.

    ``with_token_ids``: each choice also has the ids of its new tokens.
    """

    request_id: RequestId
    created: int
    model: str
    with_token_ids: bool = False


class Shape(Protocol):
    """One endpoint's objects. ``whole`` and ``chunk`` take a choice each per text delta."""

    def whole(self, envelope: Envelope, choices: Sequence[TextDelta]) -> Json: ...
    def chunk(self, envelope: Envelope, deltas: Sequence[TextDelta]) -> Json: ...
    def opening(self, envelope: Envelope, choice: int) -> Json | None:
        """A choice's first chunk, ahead of its text; None where there is none."""
        ...


class CompletionShape:
    """``/v1/completions``: a chunk is a response in small."""

    def whole(self, envelope: Envelope, choices: Sequence[TextDelta]) -> Json:
        return _object(
            envelope,
            "cmpl",
            "text_completion",
            [_choice(envelope, c, {"text": c.text}) for c in choices],
        )

    def chunk(self, envelope: Envelope, deltas: Sequence[TextDelta]) -> Json:
        return self.whole(envelope, deltas)

    def opening(self, envelope: Envelope, choice: int) -> Json | None:
        return None


class ChatShape:
    """``/v1/chat/completions``: the role comes once, in a choice's first chunk."""

    def whole(self, envelope: Envelope, choices: Sequence[TextDelta]) -> Json:
        rows = [
            _choice(
                envelope, c, {"message": {"role": "assistant", "content": c.text, "refusal": None}}
            )
            for c in choices
        ]
        return _object(envelope, "chatcmpl", "chat.completion", rows)

    def chunk(self, envelope: Envelope, deltas: Sequence[TextDelta]) -> Json:
        rows = [
            _choice(envelope, d, {"delta": {"content": d.text} if d.text else {}}) for d in deltas
        ]
        return _object(envelope, "chatcmpl", "chat.completion.chunk", rows)

    def opening(self, envelope: Envelope, choice: int) -> Json | None:
        row = _choice(
            envelope, TextDelta(choice, ""), {"delta": {"role": "assistant", "content": ""}}
        )
        return _object(envelope, "chatcmpl", "chat.completion.chunk", [row])


def usage_json(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def model_json(name: str, created: int, max_tokens: int | None) -> Json:
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "pdspan",
        "max_model_len": max_tokens,
    }


def _object(envelope: Envelope, prefix: str, kind: str, choices: list[Json]) -> Json:
    return {
        "id": f"{prefix}-{envelope.request_id}",
        "object": kind,
        "created": envelope.created,
        "model": envelope.model,
        "choices": choices,
    }


def _choice(envelope: Envelope, delta: TextDelta, content: Json) -> Json:
    choice = {
        "index": delta.choice,
        **content,
        "logprobs": None,
        "finish_reason": delta.finish_reason and delta.finish_reason.value,
    }
    if envelope.with_token_ids:
        choice["token_ids"] = list(delta.token_ids)
    return choice
