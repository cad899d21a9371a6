"""A measured path as a report: modes, advice, shipping against prefilling, and what was assumed.

``as_json`` is for programs; ``pdspan.probe_text`` says the same to people.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kvtransfer import in_words
from kvtransfer.limits import MODES
from kvtransfer.path_advice import Advice, advise
from kvtransfer.path_prediction import (
    ASSUMED_FRAME_COST_S,
    Model,
    Prediction,
    Shipping,
    predict,
    shipping,
)
from pdcore.settings import TransferSettings
from pdspan.probe import Measured


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be predicted. ``decode_tokens_per_s``: None where it is taken for the prefill
    node's. ``rate_source``: where the prefill rate comes from, or why it is not known."""

    num_tokens: int
    mode: str
    model: Model
    decode_tokens_per_s: float | None
    rate_source: str
    settings: TransferSettings


@dataclass(frozen=True, slots=True)
class ProbeReport:
    address: str
    measured: Measured
    question: Question
    modes: tuple[Prediction, ...]
    advice: tuple[Advice, ...]
    shipping: Shipping | None  # None without a prefill rate


def report_on(address: str, measured: Measured, question: Question) -> ProbeReport:
    path, model, settings = measured.path, question.model, question.settings
    prefill = model.prefill_tokens_per_s
    return ProbeReport(
        address=address,
        measured=measured,
        question=question,
        modes=tuple(predict(mode, question.num_tokens, model, path, settings) for mode in MODES),
        advice=tuple(advise(path, measured.rtt_median_s, measured.limits, settings)),
        shipping=None
        if prefill is None
        else shipping(
            question.mode,
            question.num_tokens,
            model,
            question.decode_tokens_per_s or prefill,
            path,
            settings,
        ),
    )


def as_json(report: ProbeReport) -> dict[str, Any]:
    """Times in seconds, sizes in bytes, rates in bytes or tokens a second."""
    measured, question = report.measured, report.question
    return {
        "target": report.address,
        "node": measured.node.name,
        "model": measured.node.model,
        "rtt_min_s": measured.rtt_min_s,
        "rtt_median_s": measured.rtt_median_s,
        "num_pings": measured.num_pings,
        "rates": [asdict(measured.one), asdict(measured.several)],
        "fills_path_bytes": measured.path.held_bytes,
        "tcp": asdict(measured.limits),
        "num_tokens": question.num_tokens,
        "page_bytes": question.model.layout.page_bytes,
        "page_tokens": question.model.layout.page_tokens,
        "prefill_tokens_per_s": question.model.prefill_tokens_per_s,
        "decode_tokens_per_s": question.decode_tokens_per_s,
        "modes": [asdict(prediction) for prediction in report.modes],
        "advice": [asdict(advice) for advice in report.advice],
        "shipping": asdict(report.shipping) if report.shipping else None,
        "assumptions": list(assumptions(report)),
    }


def assumptions(report: ProbeReport) -> Iterator[str]:
    """What the predictions take for granted, in words."""
    question = report.question
    prefill = question.model.prefill_tokens_per_s
    yield (
        f"{in_words.time(ASSUMED_FRAME_COST_S)} of software for each frame and 2.4 s for each GB;"
        " no loss, no slow start, no other transfer on the path"
    )
    if prefill is None:
        yield f"rate of prefill {question.rate_source}"
        yield "pages that leave during prefill: all ready at once"
        return
    yield (
        f"prefill at {tokens_in_words(prefill)} tokens/s ({question.rate_source}),"
        f" in chunks of {question.model.step_tokens} tokens"
    )
    if question.decode_tokens_per_s is None:
        yield "the decode node prefills as fast as the prefill node: --decode-tokens-per-s"
    yield "both nodes idle, and the router as near to one as to the other"


def tokens_in_words(per_s: float) -> str:
    """With three figures at least: 5004, 84.3."""
    return f"{per_s:.0f}" if per_s >= 100 else f"{per_s:.3g}"
