"""The verdict: which term's removal would shorten a transfer's modelled time most.

compute: the producer instant; software: o = 0; rtt: R = 0; bandwidth: B infinite. The shares of the
time that was measured do not decide: a full window on a full link also waits for acknowledgements.
They and the model together make the sentence that a person reads.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from kvtransfer import in_words
from kvtransfer.accounting import SendState
from kvtransfer.path_evidence import with_frames_of
from kvtransfer.path_model import Path, Shape, Step, modelled_s

AUTO_FRAME_BYTES = 2 * 2**20
AUTO_WINDOW_BYTES = 64 * 2**20
NO_FASTER = 0.8  # another mode is named when it takes less than this share of the time


class Verdict(StrEnum):
    COMPUTE = "compute_bound"
    SOFTWARE = "software_bound"
    RTT = "rtt_bound"
    BANDWIDTH = "bandwidth_bound"


@dataclass(frozen=True, slots=True)
class Judgement:
    """``gains_s``: by how much each removal shortens ``modelled_s``. ``auto_s``: what ``auto``
    would take for the same pages over the same path."""

    verdict: Verdict
    modelled_s: float
    auto_s: float
    gains_s: Mapping[Verdict, float]
    text: str


@dataclass(frozen=True, slots=True)
class Measured:
    """``exposed_s``: from the last page's being ready to the commit. ``tcp_window_bytes``: what the
    send buffers of TCP let all connections have in flight."""

    duration_s: float
    exposed_s: float
    shares_s: Mapping[SendState, float]
    tcp_window_bytes: float = math.inf


def gains_s(shape: Shape, path: Path) -> dict[Verdict, float]:
    whole_s = modelled_s(shape, path)
    at_once = replace(shape, steps=(Step(0.0, shape.page_bytes),), handoff_s=0.0)
    return {
        Verdict.COMPUTE: whole_s - modelled_s(at_once, path),
        Verdict.SOFTWARE: whole_s
        - modelled_s(shape, replace(path, frame_cost_s=0.0, receive_cost_s=0.0)),
        Verdict.RTT: whole_s - modelled_s(shape, replace(path, rtt_s=0.0, restart_s=0.0)),
        Verdict.BANDWIDTH: whole_s - modelled_s(shape, replace(path, link_bytes_per_s=math.inf)),
    }


def verdict_of(gains: Mapping[Verdict, float]) -> Verdict:
    return max(gains, key=lambda verdict: gains[verdict])


def judge(shape: Shape, path: Path, measured: Measured) -> Judgement:
    gains = gains_s(shape, path)
    verdict = verdict_of(gains)
    auto_s = _auto_s(shape, path)
    sentence = _SENTENCES[verdict](shape, path, measured, auto_s)
    return Judgement(verdict, modelled_s(shape, path), auto_s, gains, f"{verdict}: {sentence}")


def _auto_s(shape: Shape, path: Path) -> float:
    """The same pages, ready when they were, in large frames and a window that fills the link."""
    frame_bytes = min(AUTO_FRAME_BYTES, shape.page_bytes)
    window_bytes = max(AUTO_WINDOW_BYTES, int(2 * path.rtt_s * path.link_bytes_per_s))
    auto = replace(shape, frame_bytes=frame_bytes, window_bytes=window_bytes)
    flowing = replace(path, restart_s=0.0)
    return modelled_s(auto, with_frames_of(flowing, shape.frame_bytes, frame_bytes))


def _rtt_bound(shape: Shape, path: Path, measured: Measured, auto_s: float) -> str:
    """Full buffers show as waiting for the transport; they too wait for acknowledgements."""
    waited_s = measured.shares_s[SendState.WINDOW]
    what = f"of {in_words.size(shape.frame_bytes)} frames"
    if shape.window_bytes >= shape.frame_bytes:
        waited_s += measured.shares_s[SendState.TRANSPORT]
        what = f"with at most {in_words.size(shape.window_bytes)} in flight"
    if shape.window_bytes == measured.tcp_window_bytes:
        what += " (TCP's send buffers, net.ipv4.tcp_wmem)"
    return (
        f"{in_words.share(waited_s, measured.duration_s)} of"
        f" {in_words.time(measured.duration_s)} waiting for acknowledgements {what} over a"
        f" {in_words.time(path.rtt_s)} path; {_auto(measured, auto_s)}"
    )


def _software_bound(shape: Shape, path: Path, measured: Measured, auto_s: float) -> str:
    num_frames = math.ceil(shape.page_bytes / shape.frame_bytes)
    return (
        f"about {in_words.time(path.frame_cost_s)} of processing at both ends for each of"
        f" {num_frames} frames of {in_words.size(shape.frame_bytes)}, in"
        f" {in_words.time(measured.duration_s)}; {_auto(measured, auto_s)}"
    )


def _bandwidth_bound(shape: Shape, path: Path, measured: Measured, auto_s: float) -> str:
    line_s = shape.page_bytes / path.link_bytes_per_s
    return (
        f"{in_words.size(shape.page_bytes)} take {in_words.time(line_s)} of"
        f" {in_words.time(measured.duration_s)} at the path's"
        f" {in_words.rate(path.link_bytes_per_s)}; {_auto(measured, auto_s)}"
    )


def _compute_bound(shape: Shape, path: Path, measured: Measured, auto_s: float) -> str:
    waited = in_words.share(measured.shares_s[SendState.PRODUCER], measured.duration_s)
    return (
        f"{waited} of {in_words.time(measured.duration_s)} waiting for pages to be computed;"
        f" {in_words.time(measured.exposed_s)} passed after the last of them, over a"
        f" {in_words.time(path.rtt_s)} path"
    )


def _auto(measured: Measured, auto_s: float) -> str:
    if auto_s < NO_FASTER * measured.duration_s:
        return f"`auto` would take about {in_words.time(auto_s)}"
    return "no mode would be much faster"


_SENTENCES = {
    Verdict.COMPUTE: _compute_bound,
    Verdict.SOFTWARE: _software_bound,
    Verdict.RTT: _rtt_bound,
    Verdict.BANDWIDTH: _bandwidth_bound,
}
