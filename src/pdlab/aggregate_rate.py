"""What a throughput test would say of a serving run: KV bytes per second of all requests together.

A block's time is that from its first arrival to its last first token. Failed requests count neither
in bytes nor in time.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from pdlab.records import RequestRecord


def aggregate_bytes_per_s(requests: Iterable[RequestRecord]) -> float | None:
    """The median of the blocks; None where no block shipped anything."""
    blocks: dict[int, list[RequestRecord]] = defaultdict(list)
    for request in requests:
        if request.status == "ok" and request.ttft_s is not None and _page_bytes(request):
            blocks[request.repetition].append(request)
    return median(map(_rate_of, blocks.values())) if blocks else None


def _rate_of(block: Sequence[RequestRecord]) -> float:
    began_s = min(request.scheduled_s for request in block)
    ended_s = max(request.scheduled_s + (request.ttft_s or 0.0) for request in block)
    return sum(map(_page_bytes, block)) / (ended_s - began_s)


def _page_bytes(request: RequestRecord) -> int:
    transfer = (request.timeline or {}).get("transfer") or {}
    return int(transfer.get("page_bytes", 0))
