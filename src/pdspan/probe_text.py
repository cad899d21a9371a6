"""What ``pdspan probe`` prints for people: the path, what holds it back, every mode, what pays.

docs/probe.md explains each line.
"""

from collections.abc import Iterator, Sequence

from kvtransfer import in_words
from kvtransfer.path_advice import Advice
from kvtransfer.path_prediction import NoGain, Prediction, Shipping
from pdspan.probe import Measured, Rate
from pdspan.probe_report import ProbeReport, Question, assumptions, tokens_in_words

HEADINGS = ("mode", "frame", "in flight", "connections", "transfer", "after prefill", "bound")


def as_text(report: ProbeReport) -> str:
    sections = (
        _heading(report),
        "\n".join(_path_lines(report.measured)),
        "\n".join(_advice_lines(report.advice)),
        "\n".join(_mode_lines(report)),
        "\n".join(_shipping_lines(report)),
        "\n".join(("assumed", *(f"  {line}" for line in assumptions(report)))),
    )
    return "\n\n".join(sections)


def _heading(report: ProbeReport) -> str:
    node, layout = report.measured.node, report.question.model.layout
    return (
        f"{node.name} at {report.address}, seen from this machine: {node.model},"
        f" {in_words.size(layout.page_bytes)} pages of {layout.page_tokens} tokens"
    )


def _path_lines(measured: Measured) -> Iterator[str]:
    limits = measured.limits
    yield (
        f"round trip  {in_words.exact_time(measured.rtt_min_s)} at least,"
        f" {in_words.exact_time(measured.rtt_median_s)} in the median ({measured.num_pings} pings)"
    )
    yield f"rate        {_rate(measured.one)}"
    if measured.several.num_connections > 1:
        yield f"            {_rate(measured.several)}"
    yield (
        f"in flight   {in_words.size(measured.path.held_bytes)} fill this path"
        " (round trip x best rate)"
    )
    idle = {True: "on", False: "off", None: "unknown"}[limits.slow_start_after_idle]
    yield (
        f"TCP         {limits.congestion or 'unknown congestion control'}; slow start after idle"
        f" {idle}; {_share(limits.retransmitted_share)} of the bytes sent again"
    )
    yield (
        f"            send buffer here at most {_size(limits.send_buffer_bytes)}, full"
        f" {_share(limits.send_limited_share)} of the time; receive buffer there at most"
        f" {_size(limits.receive_buffer_bytes)}, full {_share(limits.receive_limited_share)}"
    )


def _share(share: float | None) -> str:
    return "an unknown share" if share is None else f"{100 * share:.3g} %"


def _rate(rate: Rate) -> str:
    count = f"{rate.num_connections} connection{'s' if rate.num_connections > 1 else ''}"
    if not rate.sent_bytes:
        return f"{in_words.exact_rate(rate.bytes_per_s)} by {count}: given, not measured"
    growing = "" if rate.is_full else "; not steady yet, so the path may carry more"
    return (
        f"{in_words.exact_rate(rate.bytes_per_s)} by {count}"
        f" ({in_words.size(rate.sent_bytes)} sent{growing})"
    )


def _size(nbytes: int | None) -> str:
    return "an unknown size" if nbytes is None else in_words.size(nbytes)


def _advice_lines(advice: Sequence[Advice]) -> Iterator[str]:
    if not advice:
        yield "held back by nothing that could be seen"
        return
    yield "held back by"
    for one in advice:
        yield f"  {one.finding}"
        yield f"    -> {one.remedy}"


def _mode_lines(report: ProbeReport) -> Iterator[str]:
    question = report.question
    layout = question.model.layout
    nbytes = layout.num_pages(question.num_tokens) * layout.page_bytes
    yield f"predicted for a prompt of {question.num_tokens} tokens, {in_words.size(nbytes)} of KV"
    rows = [HEADINGS, *(_mode_row(prediction) for prediction in report.modes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()


def _mode_row(prediction: Prediction) -> tuple[str, ...]:
    window, exposed = prediction.window_bytes, prediction.exposed_s
    return (
        prediction.mode,
        in_words.size(prediction.frame_bytes),
        in_words.size(window) if window else "1 frame",
        str(prediction.num_connections),
        in_words.exact_time(prediction.transfer_s),
        "unknown" if exposed is None else in_words.exact_time(exposed),
        prediction.bound,
    )


def _shipping_lines(report: ProbeReport) -> Iterator[str]:
    question, path = report.question, report.measured.path
    carries = path.all_bytes_per_s / question.model.token_bytes
    yield "shipping KV, or prefilling at the decode node"
    yield f"  the path carries the KV of {tokens_in_words(carries)} tokens/s"
    prefill = question.model.prefill_tokens_per_s
    if report.shipping is None or prefill is None:
        least_s = next(one.transfer_s for one in report.modes if one.mode == question.mode)
        outpaces = tokens_in_words(question.num_tokens / least_s)
        yield (
            f"  a decode node that prefills more than {outpaces} tokens/s"
            " gives the first token earlier by itself,"
        )
        yield "  however fast the prefill node is"
        yield f"  rate of prefill {question.rate_source}; --prefill-tokens-per-s tells it"
        return
    decode = question.decode_tokens_per_s or prefill
    yield from _verdict_lines(report.shipping, question, prefill, decode)


def _verdict_lines(
    result: Shipping, question: Question, prefill: float, decode: float
) -> Iterator[str]:
    yield (
        f"  {question.num_tokens} tokens: {in_words.exact_time(result.shipped_s)} when shipped"
        f" ({question.num_tokens} / {tokens_in_words(prefill)} + what `{question.mode}` leaves"
        " exposed),"
    )
    yield (
        f"  {in_words.exact_time(result.local_s)} at the decode node"
        f" ({question.num_tokens} / {tokens_in_words(decode)})"
    )
    if result.from_tokens is not None:
        yield f"  shipping gives the first token earlier from about {result.from_tokens} tokens on"
    else:
        yield "  shipping gives no prompt its first token earlier:"
        yield f"  {_why_not(result, question, decode)}"
    yield (
        f"  either way it takes {in_words.exact_time(result.local_s)} of prefill per prompt off the"
        " decode node, which generates meanwhile"
    )


def _why_not(result: Shipping, question: Question, decode: float) -> str:
    if result.no_gain is NoGain.DECODE:
        return "the decode node prefills as fast as the prefill node"
    if result.no_gain is NoGain.PATH:
        return f"the path carries less than the decode node's {tokens_in_words(decode)} tokens/s"
    return (
        f"even of {question.model.max_tokens} tokens `{question.mode}` leaves"
        f" {in_words.exact_time(result.longest_exposed_s)} exposed, and prefill gains"
        f" {in_words.exact_time(result.longest_gain_s)}"
    )
