"""Measures what lies between two hosts: small round trips first, then a short transfer over TCP.

The ends are two small processes (``measure_ends.py``), so this works on any kind of link and says
what a program there would see. Round trips are counted on an idle connection, after its first few;
the rate is the payload that the receiver got, once the flows have had time to speed up: the median
of ten short spans, since what a retransmission held back arrives all at once.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from pdcore.errors import MeasurementFailed
from pdlab.link.hosts import Host

NUM_ROUND_TRIPS = 15
NUM_FLOWS = 4
MEASURED_S = 1.0
ANSWER_S = 20.0  # how long a connection or a round trip may take
PATIENCE_S = 30.0
_ENDS = str(Path(__file__).with_name("measure_ends.py"))


@dataclass(frozen=True, slots=True)
class Measurement:
    round_trips_s: tuple[float, ...]
    rate_bps: float
    """Payload bits per second of all flows together."""
    num_flows: int
    num_bytes: int
    """What the rate was counted over."""

    @property
    def rtt_min_s(self) -> float:
        return min(self.round_trips_s)

    @property
    def rtt_median_s(self) -> float:
        return median(self.round_trips_s)


def measure_hosts(
    client: Host, server: Host, address_of: Callable[[int], str], expected_rtt_s: float
) -> Measurement:
    """From ``client`` to ``server``; ``address_of`` a port of the server is where to connect."""
    warm_s = 0.3 + 8 * expected_rtt_s  # 8 of about 30 round trips in all
    serve = _python(server, "serve", server.address, str(warm_s), str(MEASURED_S))
    with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as end:
        try:
            assert end.stdout is not None
            port = end.stdout.readline().strip()
            if not port:
                raise MeasurementFailed(f"the measuring server did not start: {_last_line(end)}")
            counts = (str(NUM_ROUND_TRIPS), str(NUM_FLOWS), str(ANSWER_S))
            round_trips = _call(_python(client, "call", address_of(int(port)), *counts), warm_s)
            received = json.loads(end.stdout.readline() or "[]")
        finally:
            end.kill()
    if not any(received):
        raise MeasurementFailed("no byte of the measuring transfer came through the link")
    per_span = median(received) or fmean(received)  # on a very slow line most spans are empty
    rate_bps = per_span * 8 / (MEASURED_S / len(received))
    return Measurement(tuple(round_trips), rate_bps, NUM_FLOWS, sum(received))


def _python(host: Host, *arguments: str) -> list[str]:
    return host.command(sys.executable, "-I", "-S", _ENDS, *arguments)


def _call(command: list[str], warm_s: float) -> list[float]:
    patience_s = PATIENCE_S + 4 * warm_s
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=patience_s
        )
    except subprocess.TimeoutExpired:
        raise MeasurementFailed(
            f"measuring failed: too little came through within {patience_s:.0f} s"
        ) from None
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise MeasurementFailed(f"measuring failed: {last}")
    return [float(word) for word in result.stdout.split()]


def _last_line(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    return (process.stderr.read().strip().splitlines() or ["no reason given"])[-1]
