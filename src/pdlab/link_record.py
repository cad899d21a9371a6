"""A measured link as records state it: what it was set to, and what was found."""

from pdlab.link import MeasuredLink
from pdlab.records import LinkRecord


def link_record(measured: MeasuredLink, default_congestion: str) -> LinkRecord:
    """``default_congestion``: the machine's, in force where the link sets none."""
    profile, tcp = measured.profile, measured.tcp
    return LinkRecord(
        kind=measured.kind,
        rtt_s=profile.rtt_s,
        rate_bps=profile.rate_bps,
        loss=profile.loss,
        jitter_s=profile.jitter_s,
        queue_bytes=measured.queue_bytes,
        buffers=tcp.buffers,
        congestion=tcp.congestion or default_congestion,
        rtt_min_s=measured.rtt_min_s,
        rtt_median_s=measured.rtt_median_s,
        measured_rate_bps=measured.rate_bps,
        measured_with=(
            f"{measured.num_round_trips} round trips, then {measured.num_flows} TCP connections"
            f" together, {measured.num_bytes} bytes"
        ),
        slow_start_after_idle=tcp.slow_start_after_idle,
        metrics_save=tcp.metrics_save,
        notes=measured.limits,
    )
