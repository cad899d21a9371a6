"""What each mode would take on a path that was measured, and when shipping KV beats computing it.

A mode's own limits give the shape of the transfer, the first-principles model its time. Two rates
of prefill decide where a prompt is faster: n tokens take n/P + exposed(n) when they are shipped,
and n/D when the decode node computes them. Where P = D shipping never wins for a single request: it
costs the exposed time, and leaves the decode node free to generate.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from kvtransfer.frame_size import served_bytes
from kvtransfer.limits import SendLimits, Starts, limits_for
from kvtransfer.path_evidence import COST_S_PER_BYTE, RECEIVER_SHARE
from kvtransfer.path_model import Path, Shape, Step, modelled_s
from kvtransfer.stripe_policy import START_STRIPES, stripes_for_buffers
from kvtransfer.verdict import Verdict, gains_s, verdict_of
from kvtransfer.window import settled_window_bytes
from pdcore.kv_layout import KvLayout
from pdcore.settings import TransferSettings

ASSUMED_FRAME_COST_S = 2e-4  # software per frame at both ends, beside what grows with its bytes


@dataclass(frozen=True, slots=True)
class ProbedPath:
    """Rates are the best that was seen: of one connection, and of any number together.

    ``send_buffer_bytes``: the most that one connection gets; None: unknown.
    """

    rtt_s: float
    one_bytes_per_s: float
    all_bytes_per_s: float
    send_buffer_bytes: int | None = None

    def rate_bytes_per_s(self, num_connections: int) -> float:
        return min(self.all_bytes_per_s, num_connections * self.one_bytes_per_s)

    @property
    def held_bytes(self) -> int:
        """What fills the path."""
        return int(self.rtt_s * self.all_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Model:
    """What is shipped, and how fast it is computed, in chunks of ``step_tokens``."""

    layout: KvLayout
    max_tokens: int
    step_tokens: int
    prefill_tokens_per_s: float | None

    @property
    def token_bytes(self) -> float:
        return self.layout.page_bytes / self.layout.page_tokens


@dataclass(frozen=True, slots=True)
class Prediction:
    """``transfer_s``: from when the mode lets the first page leave to the commit. ``exposed_s``:
    the part of it after the end of prefill; None where that depends on an unknown prefill rate.
    ``window_bytes`` 0: one frame at a time.
    """

    mode: str
    frame_bytes: int
    window_bytes: int
    num_connections: int
    transfer_s: float
    exposed_s: float | None
    bound: Verdict


class NoGain(StrEnum):
    """Why shipping gives no prompt its first token earlier."""

    DECODE = "decode_prefills_as_fast"
    PATH = "path_carries_less"  # than the decode node would compute
    EXPOSED = "exposed_outweighs"  # what the faster prefill gains, of the longest prompt too


@dataclass(frozen=True, slots=True)
class Shipping:
    """``path_tokens_per_s``: prompt tokens whose KV the path carries in a second.

    ``from_tokens``: the shortest prompt from which on shipping gives the first token earlier; None
    where it does at no length, for the reason ``no_gain``. ``shipped_s`` and ``local_s`` are those
    of the prompt asked for, ``longest_...`` of the longest that the node holds: what it waits for
    after prefill, and what the faster prefill gains.
    """

    path_tokens_per_s: float
    shipped_s: float
    local_s: float
    from_tokens: int | None
    no_gain: NoGain | None
    longest_exposed_s: float
    longest_gain_s: float


def predict(
    mode: str, num_tokens: int, model: Model, probed: ProbedPath, settings: TransferSettings
) -> Prediction:
    """Raises InvalidRequest for an unknown mode, ConfigError for pages that fit in no message."""
    limits = limits_for(mode, settings, model.layout)
    shape = _shape(limits, num_tokens, model, probed, settings)
    num_connections = _num_connections(limits, num_tokens, model, probed)
    path = _path(probed, num_connections, shape.frame_bytes)
    transfer_s = modelled_s(shape, path)
    is_known = limits.starts is Starts.AFTER_PREFILL or model.prefill_tokens_per_s is not None
    return Prediction(
        mode=mode,
        frame_bytes=shape.frame_bytes,
        window_bytes=shape.window_bytes,
        num_connections=num_connections,
        transfer_s=transfer_s,
        exposed_s=transfer_s - shape.handoff_s if is_known else None,
        bound=verdict_of(gains_s(shape, path)),
    )


def shipping(
    mode: str,
    num_tokens: int,
    model: Model,
    decode_tokens_per_s: float,
    probed: ProbedPath,
    settings: TransferSettings,
) -> Shipping:
    """``model`` has a prefill rate; ``decode_tokens_per_s`` is the decode node's."""
    assert model.prefill_tokens_per_s, "the prefill rate is known"
    prefill_tokens_per_s = model.prefill_tokens_per_s

    def exposed_s(length: int) -> float:
        seconds = predict(mode, length, model, probed, settings).exposed_s
        assert seconds is not None, "the prefill rate is known"
        return seconds

    def gain_s(length: int) -> float:
        return length / decode_tokens_per_s - length / prefill_tokens_per_s

    from_tokens = _shortest(lambda length: exposed_s(length) < gain_s(length), model)
    path_tokens_per_s = probed.all_bytes_per_s / model.token_bytes
    return Shipping(
        path_tokens_per_s=path_tokens_per_s,
        shipped_s=num_tokens / prefill_tokens_per_s + exposed_s(num_tokens),
        local_s=num_tokens / decode_tokens_per_s,
        from_tokens=from_tokens,
        no_gain=None
        if from_tokens is not None
        else _no_gain(prefill_tokens_per_s, decode_tokens_per_s, path_tokens_per_s),
        longest_exposed_s=exposed_s(model.max_tokens),
        longest_gain_s=gain_s(model.max_tokens),
    )


def _no_gain(prefill: float, decode: float, path: float) -> NoGain:
    """All in tokens/s."""
    if decode >= prefill:
        return NoGain.DECODE
    return NoGain.PATH if path <= decode else NoGain.EXPOSED


def _shortest(wins: Callable[[int], bool], model: Model) -> int | None:
    """The shortest whole number of pages that wins. The longer a prompt, the more of its transfer
    happens beside prefill: what wins once wins from there on."""
    page_tokens = model.layout.page_tokens
    lengths = range(page_tokens, model.max_tokens + 1, page_tokens)
    index = bisect_left(lengths, True, key=wins)
    return lengths[index] if index < len(lengths) else None


def _shape(
    limits: SendLimits,
    num_tokens: int,
    model: Model,
    probed: ProbedPath,
    settings: TransferSettings,
) -> Shape:
    frame_bytes = limits.frame.pages * limits.frame.layers * model.layout.layer_bytes
    window_bytes = limits.window_bytes or 0
    if limits.is_adaptive:
        window_bytes = settled_window_bytes(probed.held_bytes, probed.all_bytes_per_s)
        frame_bytes = min(frame_bytes, served_bytes(probed.rtt_s, probed.all_bytes_per_s))
    steps = tuple(_steps(limits, num_tokens, model))
    return Shape(
        steps=steps,
        frame_bytes=frame_bytes,
        window_bytes=min(window_bytes, settings.credit_bytes),
        handoff_s=steps[-1].at_s,
    )


def _steps(limits: SendLimits, num_tokens: int, model: Model) -> Iterator[Step]:
    """When how many bytes of the prompt's pages may leave; time begins with the first of them."""
    layout, rate = model.layout, model.prefill_tokens_per_s
    if limits.starts is Starts.AFTER_PREFILL or rate is None:
        yield Step(0.0, layout.num_pages(num_tokens) * layout.page_bytes)
        return
    first_s, num_sent = None, 0
    for end in (*range(model.step_tokens, num_tokens, model.step_tokens), num_tokens):
        num_final = layout.num_pages(end) if end == num_tokens else end // layout.page_tokens
        if num_final > num_sent:
            first_s = end / rate if first_s is None else first_s
            yield Step(end / rate - first_s, (num_final - num_sent) * layout.page_bytes)
            num_sent = num_final


def _num_connections(limits: SendLimits, num_tokens: int, model: Model, probed: ProbedPath) -> int:
    """For ``auto`` as ``StripePolicy`` decides at first; it tries more where that may help."""
    frames = limits.stripes_for(model.layout.num_pages(num_tokens), model.layout)
    if not limits.is_adaptive or probed.send_buffer_bytes is None:
        return min(frames, START_STRIPES) if limits.is_adaptive else frames
    for_buffers = stripes_for_buffers(probed.held_bytes, probed.send_buffer_bytes)
    return min(frames, max(START_STRIPES, for_buffers))


def _path(probed: ProbedPath, num_connections: int, frame_bytes: int) -> Path:
    cost_s = ASSUMED_FRAME_COST_S + COST_S_PER_BYTE * frame_bytes
    rate = probed.rate_bytes_per_s(num_connections)
    return Path(probed.rtt_s, rate, cost_s, RECEIVER_SHARE * cost_s)
