"""One request's timeline, joined from the router's and the nodes' parts (``timeline: true``).

Each part counts from the moment the request reached that process; clocks are never compared.
Durations may be: a transfer's shares are exclusive and add up to its ``duration_s``.
"""

from typing import Any

from pdwire.v1.generation_pb2 import NodeTimeline, TransferReport
from router.relay import Outcome

SHARES = ("producer_s", "prepare_s", "window_s", "transport_s")


def joined_timeline(router: NodeTimeline, outcome: Outcome) -> dict[str, Any]:
    """``prefill`` and ``transfer`` are None for a colocated request."""
    prefill = outcome.prefilled.timeline if outcome.prefilled is not None else None
    shipped = prefill is not None and prefill.HasField("transfer")
    placement = outcome.placement
    return {
        "transfer_id": outcome.transfer_id,
        "placement": {
            "prefill": placement.prefill.info.name if placement.prefill else None,
            "decode": placement.decode.info.name,
        },
        "router": _part(router),
        "prefill": _part(prefill) if prefill is not None else None,
        "transfer": _transfer(prefill.transfer) if prefill is not None and shipped else None,
        "decode": _part(outcome.finished.timeline),
    }


def _part(timeline: NodeTimeline) -> dict[str, Any]:
    return {
        "node": timeline.node,
        "clock_s": timeline.clock_s,
        "spans": [
            {"name": span.name, "start_s": span.start_s, "duration_s": span.duration_s}
            for span in timeline.spans
        ],
    }


def _transfer(report: TransferReport) -> dict[str, Any]:
    return {
        "mode": report.mode,
        "page_bytes": report.page_bytes,
        "wire_bytes": report.wire_bytes,
        "frames": report.frames,
        "round_trips": report.round_trips,
        "stripes": report.stripes,
        "attempts": report.attempts,
        "duration_s": report.duration_s,
        "exposed_s": report.exposed_s,
        "max_in_flight_bytes": report.max_in_flight_bytes,
        "shares": {share: getattr(report, share) for share in SHARES},
        "verdict": report.verdict,
        "verdict_text": report.verdict_text,
        "frame_bytes": report.frame_bytes,
        "window_bytes": report.window_bytes,
        "rtt_s": report.rtt_s,
        "rate_bytes_per_s": report.rate_bytes_per_s,
        "frame_cost_s": report.frame_cost_s,
        "modelled_s": report.modelled_s,
        "auto_s": report.auto_s,
        "warmup_bytes": report.warmup_bytes,
    }
