"""What was measured becomes cells of the record: medians, ratios, predictions, and what is void.

A slow yardstick proves nothing: where ``raw_tcp`` itself stays under ``LEAST_RAW_SHARE`` of what
the link allows, every cell of that trial is void, and says why.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from kvtransfer.path_model import Path, Shape, Step, modelled_s, streamed_s
from pdcore.errors import PdspanError
from pdlab.records import Cell, Shares, median_of
from pdlab.transfer.arms import RAW_TCP, RAW_TCP_ARMS
from pdlab.transfer.bench import Bench
from pdlab.transfer.lane import Lane, Sample
from pdlab.transfer.messages import Told
from pdlab.transfer.trial import Trial

LEAST_RAW_SHARE = 0.93
VOID_RATE_BPS = 1e9  # the rate at which the yardstick is known to reach it


def cells_of(trial: Trial, lanes: Sequence[Lane], bench: Bench) -> list[Cell]:
    """One cell for each arm, in the trial's order."""
    raw_bps = best_raw_bps(lanes)
    void = void_reason(trial, lanes, bench)
    return [
        replace(
            cell_of(trial, lane, bench),
            ratio_to_raw_tcp=_median_bps(lane) / raw_bps if raw_bps else None,
            void=void,
        )
        for lane in lanes
    ]


def best_raw_bps(lanes: Iterable[Lane]) -> float | None:
    """The median of the better raw arm; None when none was measured."""
    medians = [_median_bps(lane) for lane in lanes if lane.arm in RAW_TCP_ARMS and lane.samples]
    return max(medians, default=None)


def void_reason(trial: Trial, lanes: Sequence[Lane], bench: Bench) -> str | None:
    """Why this trial proves nothing, or None. Judged where the yardstick's own speed is known."""
    raw_bps = best_raw_bps(lanes)
    profile, is_large = trial.profile, trial.tcp.buffers == "large"
    if raw_bps is None or profile.rate_bps != VOID_RATE_BPS or not is_large or profile.loss:
        return None
    payload_bytes = max(lane.num_pages for lane in lanes if lane.arm in RAW_TCP_ARMS)
    payload_bytes *= trial.page_bytes
    bound_bps = 8 * payload_bytes / streamed_s(_path(trial, bench), payload_bytes)
    if raw_bps >= LEAST_RAW_SHARE * bound_bps:
        return None
    return (
        f"raw_tcp reached {raw_bps / 1e9:.3f} Gbit/s,"
        f" {raw_bps / bound_bps:.2f} of the link's {bound_bps / 1e9:.3f}"
    )


def cell_of(trial: Trial, lane: Lane, bench: Bench, case: str = "") -> Cell:
    """What one lane measured; without what needs other lanes."""
    samples = lane.samples
    told = [sample.sent.told for sample in samples if sample.sent.told is not None]
    moved_bytes = tuple(sample.num_bytes for sample in samples)
    was_cut = any(nbytes < trial.num_pages * trial.page_bytes for nbytes in moved_bytes)
    return Cell(
        arm=RAW_TCP if lane.arm in RAW_TCP_ARMS else lane.arm,
        rtt_s=trial.profile.rtt_s,
        rate_bps=trial.profile.rate_bps,
        page_bytes=trial.page_bytes,
        payload_bytes=trial.payload_bytes,
        stripes=max((t.stripes for t in told), default=RAW_TCP_ARMS.get(lane.arm, 1)),
        window_bytes=_window_bytes(told),
        frame_bytes=told[-1].frame_bytes if told else None,
        goodput_bps=tuple(sample.goodput_bps for sample in samples),
        median_goodput_bps=_median_bps(lane),
        ratio_to_raw_tcp=None,
        predicted_bps=_predicted_bps(samples, told, _path(trial, bench)),
        verdict=_most_frequent(t.verdict for t in told),
        shares=_shares(samples),
        cpu_s_per_gb=_median_of(1e9 * s.cpu_s / s.num_bytes for s in samples),
        verified=bool(samples) and all(sample.verified for sample in samples),
        link=bench.link_index,
        loss=trial.profile.loss,
        jitter_s=trial.profile.jitter_s,
        buffers=trial.tcp.buffers,
        congestion=bench.record.congestion,
        case=case,
        moved_bytes=moved_bytes if was_cut else (),
        time_limit_s=trial.limit_s,
        warm_bytes=lane.warm_bytes,
        warmup_bytes=told[-1].warmup_bytes if told else 0,
        sender_cpu_s_per_gb=_median_of(1e9 * s.sent.cpu_s / s.num_bytes for s in samples),
        receiver_cpu_s_per_gb=_median_of(1e9 * s.collected.cpu_s / s.num_bytes for s in samples),
        rss_growth_bytes=_rss_growth_bytes(lane),
        digest=samples[-1].collected.digest if samples else None,
        notes=() if lane.failure is None else (f"given up: {lane.failure}",),
    )


def failed_cells(trial: Trial, error: PdspanError, bench: Bench) -> list[Cell]:
    """For a step that came to nothing: what was to be measured, and why it was not."""
    lanes = [Lane(arm, bench.ends_of(arm), trial.page_bytes, failure=error) for arm in trial.arms]
    return [cell_of(trial, lane, bench) for lane in lanes]


def _path(trial: Trial, bench: Bench) -> Path:
    return Path(trial.profile.rtt_s, bench.line_bytes_per_s)


def _median_bps(lane: Lane) -> float:
    return median_of(tuple(sample.goodput_bps for sample in lane.samples))


def _median_of(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None


def _window_bytes(told: Sequence[Told]) -> int | None:
    """Of most repetitions: that of one may be narrow, while the round trip is in doubt."""
    windows = [t.window_bytes for t in told]
    return (int(median(windows)) or None) if windows else None


def _rss_growth_bytes(lane: Lane) -> int | None:
    """The most that a repetition's peaks stood above the start."""
    peaks = [s.sent.peak_rss_bytes + s.collected.peak_rss_bytes for s in lane.samples]
    return max(peaks) - lane.ends.rss_bytes if peaks else None


def _predicted_bps(samples: Sequence[Sample], told: Sequence[Told], path: Path) -> float | None:
    """The model, with R and B of the link, and o as the sender saw it; half of that is taken to
    be the receiver's. A yardstick is taken to fill the link."""
    if not samples:
        return None
    payload_bytes = samples[-1].num_bytes
    if not told:
        return 8 * payload_bytes / streamed_s(path, payload_bytes)
    last = told[-1]
    shape = Shape((Step(0.0, payload_bytes),), last.frame_bytes, last.window_bytes)
    cost_s = median(t.frame_cost_s for t in told)
    costly = replace(path, frame_cost_s=cost_s, receive_cost_s=cost_s / 2)
    return 8 * payload_bytes / modelled_s(shape, costly)


def _shares(samples: Sequence[Sample]) -> Shares | None:
    """Of the repetition whose goodput is the median (the lower one of two)."""
    ordered = sorted((s for s in samples if s.sent.told), key=lambda s: s.goodput_bps)
    if not ordered:
        return None
    told = ordered[(len(ordered) - 1) // 2].sent.told
    assert told is not None, "only such samples were kept"
    return Shares(told.producer_s, told.prepare_s, told.window_s, told.transport_s)


def _most_frequent(verdicts: Iterable[str]) -> str | None:
    counted = Counter(verdicts).most_common(1)
    return counted[0][0] if counted else None
