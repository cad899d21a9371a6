"""Records as a run would leave them, for tests of what reads them."""

from dataclasses import replace

from pdlab.host import HostRecord
from pdlab.records import (
    ArmRecord,
    Cell,
    LinkRecord,
    RequestRecord,
    ServingHeader,
    Shares,
    TransferRecord,
)

HOST = HostRecord(
    cpu="A CPU at 2.0 GHz",
    num_cores=2,
    memory_bytes=24 * 2**30,
    kernel="6.18.5",
    congestion="bbr",
    load_1m=0.1,
    versions={"python": "3.11.9", "grpcio": "1.85.3"},
)

LINK = LinkRecord(
    kind="tun",
    rtt_s=0.05,
    rate_bps=1e9,
    loss=0.0,
    jitter_s=0.0,
    queue_bytes=None,
    buffers="large",
    congestion="bbr",
    rtt_min_s=0.0501,
    rtt_median_s=0.0502,
    measured_rate_bps=0.96e9,
    measured_with="one TCP connection, 2 s",
)

CELL = Cell(
    arm="auto",
    rtt_s=0.05,
    rate_bps=1e9,
    page_bytes=368_640,
    payload_bytes=256 * 2**20,
    stripes=1,
    window_bytes=64 * 2**20,
    frame_bytes=2 * 2**20,
    goodput_bps=(0.92e9, 0.93e9, 0.91e9),
    median_goodput_bps=0.92e9,
    ratio_to_raw_tcp=0.99,
    predicted_bps=0.94e9,
    verdict="bandwidth_bound",
    shares=Shares(producer_s=0.0, prepare_s=0.1, window_s=1.2, transport_s=0.9),
    cpu_s_per_gb=2.1,
    verified=True,
    link=0,
    digest="d1",
)

REQUEST = RequestRecord(
    arm="auto",
    repetition=0,
    index=0,
    link=0,
    scheduled_s=0.0,
    sent_s=0.0,
    status="ok",
    ttft_s=1.1,
    e2e_s=1.9,
    itl_s=(0.04, 0.05),
    prompt_tokens=2048,
    token_ids=(1, 2, 3),
    timeline={"transfer": {"mode": "auto", "shares": {"window_s": 0.3}}},
)


def transfer_record(*cells: Cell, link: tuple[LinkRecord, ...] = (LINK,)) -> TransferRecord:
    return TransferRecord(
        scenario="transfer",
        created="2025-01-01T00:00:00+00:00",
        host=HOST,
        commit="0" * 40,
        link=link,
        cells=cells or (CELL,),
    )


def serving_header(*modes: str) -> ServingHeader:
    return ServingHeader(
        scenario="rtt_sweep",
        created="2025-01-01T00:00:00+00:00",
        config={"workload": {"kind": "fixed", "prompt_tokens": 2048}},
        arms=tuple(ArmRecord(name=mode, mode=mode) for mode in modes or ("auto",)),
        host=HOST,
        commit="0" * 40,
    )


def request(arm: str, repetition: int, ttft_s: float | None, **fields: object) -> RequestRecord:
    return replace(REQUEST, arm=arm, repetition=repetition, ttft_s=ttft_s, **fields)  # type: ignore[arg-type]
