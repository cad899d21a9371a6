"""Records as real runs would look, made from formulas and seeded noise: plots are tried on these.

Rates follow the first-principles model of each mode, with a cost per frame and a line that carries
0.965 of its set rate. Nothing here was measured.
"""

import random
from dataclasses import replace
from statistics import median

from pdlab.records import (
    ArmRecord,
    Cell,
    LinkRecord,
    RequestRecord,
    ServingRecord,
    Shares,
    TransferRecord,
)
from sample_records import CELL, HOST, LINK, REQUEST, serving_header

RTTS_S = (0.0, 0.001, 0.01, 0.05, 0.1, 0.2)
LADDER = ("sequential", "bulk", "windowed", "coalesced", "pipelined", "auto", "raw_tcp")
FRAME_COST_S = 0.0006
KIB, MIB = 2**10, 2**20


def link_at(rtt_s: float, rate_bps: float, kind: str = "tun") -> LinkRecord:
    return replace(
        LINK,
        kind=kind,
        rtt_s=rtt_s,
        rate_bps=rate_bps,
        queue_bytes=max(MIB, int(2 * rtt_s * rate_bps / 8)),
        rtt_min_s=rtt_s + 0.0001,
        rtt_median_s=rtt_s + 0.0002,
        measured_rate_bps=0.96 * rate_bps,
    )


def transfer_grid(
    rates_bps: tuple[float, ...] = (1e9, 5e9),
    pages: tuple[int, ...] = (12 * KIB, 64 * KIB, 360 * KIB, 2 * MIB),
    payload_bytes: int = 256 * MIB,
    repetitions: int = 5,
) -> TransferRecord:
    rng = random.Random(7)
    links = [link_at(rtt_s, rate_bps) for rate_bps in rates_bps for rtt_s in RTTS_S]
    cells = [
        _cell(rng, arm, place, link, page_bytes, payload_bytes, repetitions)
        for place, link in enumerate(links)
        for page_bytes in pages
        for arm in LADDER
    ]
    return TransferRecord(
        scenario="transfer",
        created="2025-01-01T00:00:00+00:00",
        host=HOST,
        commit="0123456789abcdef0123456789abcdef01234567",
        link=tuple(links),
        cells=tuple(cells),
    )


def serving_sweep(
    arms: tuple[str, ...] = ("sequential", "bulk", "auto", "colocated"),
    links: tuple[LinkRecord, ...] = tuple(link_at(rtt_s, 1e9) for rtt_s in RTTS_S),
    blocks: int = 7,
    at_once: tuple[int, ...] = (1,),
) -> ServingRecord:
    rng = random.Random(8)
    requests = [
        _request(rng, arm, block, index, place, link, number)
        for place, link in enumerate(links)
        for block in range(blocks)
        for number in at_once
        for arm in arms
        for index in range(number)
    ]
    header = replace(
        serving_header(),
        arms=tuple(
            ArmRecord(arm, None, "colocated") if arm == "colocated" else ArmRecord(arm, arm)
            for arm in arms
        ),
    )
    return ServingRecord(header, links, tuple(requests), complete=True)


def _cell(
    rng: random.Random,
    arm: str,
    place: int,
    link: LinkRecord,
    page_bytes: int,
    payload_bytes: int,
    repetitions: int,
) -> Cell:
    assert link.rate_bps is not None
    line = 0.965 * link.rate_bps / 8
    frame_bytes = page_bytes if arm in ("sequential", "windowed") else max(page_bytes, 2 * MIB)
    frame_s = link.rtt_s + frame_bytes / line + FRAME_COST_S
    if arm in ("sequential", "bulk"):
        rate = frame_bytes / frame_s
    else:
        rate = min(line, frame_bytes / FRAME_COST_S)
        rate = payload_bytes / (payload_bytes / rate + link.rtt_s)
    measured = tuple(8 * rate * rng.lognormvariate(-0.02, 0.02) for _ in range(repetitions))
    duration_s = 8 * payload_bytes / median(measured)
    return replace(
        CELL,
        arm=arm,
        rtt_s=link.rtt_s,
        rate_bps=link.rate_bps,
        page_bytes=page_bytes,
        payload_bytes=payload_bytes,
        frame_bytes=frame_bytes,
        goodput_bps=measured,
        median_goodput_bps=median(measured),
        predicted_bps=8 * rate,
        ratio_to_raw_tcp=min(1.0, rate / line),
        verdict=None if arm == "raw_tcp" else _verdict(arm, link.rtt_s, frame_bytes, line),
        shares=None if arm == "raw_tcp" else _shares(arm, duration_s, link.rtt_s / frame_s),
        verified=arm != "raw_tcp",
        digest=None if arm == "raw_tcp" else f"{page_bytes}",
        link=place,
    )


def _verdict(arm: str, rtt_s: float, frame_bytes: int, line: float) -> str:
    terms = {"bandwidth_bound": frame_bytes / line, "software_bound": FRAME_COST_S}
    if arm in ("sequential", "bulk"):
        terms["rtt_bound"] = rtt_s
    return max(terms, key=terms.__getitem__)


def _shares(arm: str, duration_s: float, waiting: float) -> Shares:
    window = 0.05 + 0.9 * waiting if arm in ("sequential", "bulk") else 0.45
    prepare = (1 - window) * 0.3
    return Shares(
        producer_s=0.0,
        prepare_s=prepare * duration_s,
        window_s=window * duration_s,
        transport_s=(1 - window - prepare) * duration_s,
    )


def _request(
    rng: random.Random,
    arm: str,
    block: int,
    index: int,
    place: int,
    link: LinkRecord,
    at_once: int,
) -> RequestRecord:
    page_bytes, num_pages, prefill_s = 360 * KIB, 128, 0.85
    line = 0.965 * (link.rate_bps or 1e10) / 8
    if arm == "colocated":
        transfer_s = 0.0
    elif arm == "sequential":
        transfer_s = num_pages * (link.rtt_s + at_once * page_bytes / line)
    elif arm == "bulk":
        transfer_s = num_pages / 5 * (link.rtt_s + at_once * 5 * page_bytes / line)
    else:
        transfer_s = 0.1 * at_once * num_pages * page_bytes / line + link.rtt_s
    noise = rng.lognormvariate(0, 0.03)
    ttft_s = noise * (prefill_s * (1 + 0.1 * at_once) + transfer_s + link.rtt_s / 2)
    shares = {"producer_s": 0.1, "prepare_s": 0.05, "window_s": transfer_s, "transport_s": 0.1}
    transfer = {
        "mode": arm,
        "page_bytes": page_bytes * num_pages,
        "duration_s": sum(shares.values()),
        "shares": shares,
    }
    return replace(
        REQUEST,
        arm=arm,
        repetition=block,
        index=index,
        link=place,
        ttft_s=ttft_s,
        e2e_s=ttft_s + 1.2,
        itl_s=tuple(0.04 * rng.lognormvariate(0, 0.05) for _ in range(31)),
        concurrency=at_once,
        exposed_s=None if arm == "colocated" else transfer_s + link.rtt_s / 2,
        sent_bytes=None if arm == "colocated" else page_bytes * num_pages,
        timeline={"transfer": None if arm == "colocated" else transfer},
    )
