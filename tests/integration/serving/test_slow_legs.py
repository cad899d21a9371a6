"""Each of the three legs delayed by 50 ms each way, in turn: slower, but the same tokens.

The delayed transfer shows in the timeline what it waited for; nothing here depends on how long.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from delay_relay import delay_relay
from kvtransfer.limits import MODES
from node_cluster import NodeCluster, free_port, node_cluster

TABLE = {"engine": {"dtype": "float32", "threads": 1, "step_tokens": 64, "num_pages": 64}}
DELAY_S = 0.05
PROMPT = "The quick brown fox jumps over the lazy dog. " * 8
# leg -> who sees which node by the relay's address
LEGS = {
    "router to prefill": ("prefill", ("router",)),
    "router to decode": ("decode", ("router",)),
    # The decode node advertises the relay, so that ``Run`` names it; the router goes straight.
    "prefill to decode": ("decode", ("prefill", "decode")),
}


@pytest.fixture
def slow_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NodeCluster]:
    target, viewers = LEGS[request.param]
    with node_cluster(tmp_path, TABLE) as cluster:
        port = free_port()
        for viewer in viewers:
            cluster.via[viewer][target] = f"127.0.0.1:{port}"
        with delay_relay(cluster.addresses[target], DELAY_S, port):
            cluster.start_all()
            yield cluster
            cluster.stop()


@pytest.mark.parametrize("slow_cluster", LEGS, indirect=True)
def test_a_slow_leg_changes_no_token(slow_cluster: NodeCluster, salts: Iterator[str]) -> None:
    fields = {"prompt": PROMPT, "max_tokens": 8, "return_token_ids": True, "timeline": True}
    local = slow_cluster.complete(
        kv_transfer_params={"placement": "colocated"}, cache_salt=next(salts), **fields
    )
    for mode in set(MODES) - {"sequential_layer"}:
        answer = slow_cluster.complete(
            kv_transfer_params={"mode": mode}, cache_salt=next(salts), **fields
        )
        assert answer["timeline"]["transfer"]["mode"] == mode
        assert answer["choices"] == local["choices"], mode
    slow_cluster.assert_no_page_in_use()
