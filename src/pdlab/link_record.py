"""A measured link as records state it."""

import subprocess

from pdlab.link import Host, MeasuredLink
from pdlab.records import LinkRecord


def link_record(measured: MeasuredLink, host: Host) -> LinkRecord:
    """``host`` is one of the link's ends: the congestion control in force there is asked for."""
    profile, tcp = measured.profile, measured.tcp
    return LinkRecord(
        kind=measured.kind,
        rtt_s=profile.rtt_s,
        rate_bps=profile.rate_bps,
        loss=profile.loss,
        jitter_s=profile.jitter_s,
        queue_bytes=measured.queue_bytes,
        buffers=tcp.buffers,
        congestion=congestion_on(host),
        rtt_min_s=measured.rtt_min_s,
        rtt_median_s=measured.rtt_median_s,
        measured_rate_bps=measured.rate_bps,
        measured_with=(
            f"{measured.num_round_trips} round trips, then {measured.num_flows} TCP connections"
            f" together, {measured.num_bytes} bytes"
        ),
        slow_start_after_idle=tcp.slow_start_after_idle,
        notes=measured.limits,
    )


def congestion_on(host: Host) -> str:
    """The congestion control that new connections on ``host`` get."""
    command = host.command("cat", "/proc/sys/net/ipv4/tcp_congestion_control")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
