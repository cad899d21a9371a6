"""What breaks, and how it ends: a named error for the client, and no page in use anywhere.

Real processes, killed for real. The node that is left gives everything back by itself; a node that
was started again serves the next request.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest

from node_cluster import NodeCluster, node_cluster

TABLE = {
    "engine": {"threads": 1, "step_tokens": 128, "num_pages": 160},
    "transfer": {"stall_s": 5.0, "resume_s": 1.0},
    "queue": {"drain_s": 30.0},
}
LONG_PROMPT = [(3 + 17 * i) % 40000 + 20 for i in range(900)]
STORY = "Once upon a time"
SLOW = {"mode": "sequential_layer"}  # 57 pages of 30 layers, one acknowledged frame each


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with node_cluster(tmp_path_factory.mktemp("cluster"), TABLE) as cluster:
        cluster.start_all()
        yield cluster


class Streaming:
    """A streamed request on a thread of its own; ``events`` grows while it runs."""

    def __init__(self, cluster: NodeCluster, **fields: Any) -> None:
        self.events: list[Any] = []
        self.status = 0
        self.body = ""
        self._hang_up = threading.Event()
        body = {"temperature": 0, "ignore_eos": True, "stream": True, **fields}
        self._thread = threading.Thread(target=self._run, args=(cluster.url, body))
        self._thread.start()

    def hang_up(self) -> None:
        self._hang_up.set()
        self.join()

    def join(self) -> None:
        self._thread.join(180)
        assert not self._thread.is_alive(), "the request hangs"

    @property
    def error(self) -> Any:
        """The error that ended the request, before or in mid-stream."""
        last = json.loads(self.body) if self.status != httpx.codes.OK else self.events[-1]
        return last["error"]

    def wait_for_events(self, count: int) -> None:
        wait_until(lambda: len(self.events) >= count)

    def _run(self, url: str, body: dict[str, Any]) -> None:
        request = httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60)
        with request as response:
            self.status = response.status_code
            if self.status != httpx.codes.OK:
                self.body = response.read().decode()
                return
            for line in response.iter_lines():
                if self._hang_up.is_set():
                    return
                if line and line != "data: [DONE]":
                    self.events.append(json.loads(line.removeprefix("data: ")))


def wait_until(happened: Any, within_s: float = 60) -> None:
    end_s = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.01)


def start_slow_transfer(cluster: NodeCluster) -> Streaming:
    """A request whose pages are on their way when this returns."""
    streaming = Streaming(
        cluster,
        prompt=LONG_PROMPT,
        max_tokens=50,
        kv_transfer_params=SLOW,
        cache_salt=str(time.time_ns()),
    )
    wait_until(lambda: is_in_transfer(cluster))
    return streaming


def is_in_transfer(cluster: NodeCluster) -> bool:
    loads = cluster.loads()
    return bool(loads["decode"].pages_reserved) and not loads["prefill"].num_running


def start_generating(cluster: NodeCluster, **fields: Any) -> Streaming:
    """A request of which the client has seen some tokens when this returns."""
    streaming = Streaming(cluster, **{"prompt": STORY, "max_tokens": 1500, **fields})
    streaming.wait_for_events(5)
    return streaming


def assert_serves(cluster: NodeCluster) -> None:
    cluster.wait_healthy()
    answer = cluster.complete(prompt="The capital of France is", max_tokens=4)
    assert "Paris" in answer["choices"][0]["text"]
    cluster.assert_no_page_in_use()


def restart(cluster: NodeCluster, role: str) -> None:
    cluster.start(role)
    cluster.wait_healthy()


def test_prefill_dies_in_mid_transfer(cluster: NodeCluster) -> None:
    streaming = start_slow_transfer(cluster)
    cluster.kill("prefill")
    streaming.join()
    assert streaming.status == httpx.codes.SERVICE_UNAVAILABLE
    assert "prefill" in streaming.error["message"]
    cluster.assert_no_page_in_use(["decode"])
    restart(cluster, "prefill")
    assert_serves(cluster)


def test_decode_dies_in_mid_transfer(cluster: NodeCluster) -> None:
    streaming = start_slow_transfer(cluster)
    cluster.kill("decode")
    streaming.join()
    assert streaming.status == httpx.codes.SERVICE_UNAVAILABLE
    assert "decode" in streaming.error["message"]
    cluster.assert_no_page_in_use(["prefill"])
    restart(cluster, "decode")
    assert_serves(cluster)


def test_prefill_dies_in_mid_generation(cluster: NodeCluster) -> None:
    """Its part is done: the stream goes on to its end."""
    streaming = start_generating(cluster)
    cluster.kill("prefill")
    seen = len(streaming.events)
    streaming.wait_for_events(seen + 5)
    streaming.hang_up()
    cluster.assert_no_page_in_use(["decode"])
    restart(cluster, "prefill")
    assert_serves(cluster)


def test_decode_dies_in_mid_generation(cluster: NodeCluster) -> None:
    streaming = start_generating(cluster)
    cluster.kill("decode")
    streaming.join()
    assert "decode" in streaming.error["message"], "the stream ends with an error event"
    cluster.assert_no_page_in_use(["prefill"])
    restart(cluster, "decode")
    assert_serves(cluster)


def test_the_client_hangs_up_in_mid_generation(cluster: NodeCluster) -> None:
    start_generating(cluster, n=2).hang_up()
    cluster.assert_no_page_in_use()
    assert_serves(cluster)


def test_the_client_hangs_up_in_mid_transfer(cluster: NodeCluster) -> None:
    """Nothing was answered yet, so the connection itself is closed."""
    body = {
        "prompt": LONG_PROMPT,
        "kv_transfer_params": SLOW,
        "cache_salt": str(time.time_ns()),
        "max_tokens": 8,
    }
    with closing(HTTPConnection(httpx.URL(cluster.url).netloc.decode())) as connection:
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        wait_until(lambda: is_in_transfer(cluster))
    cluster.assert_no_page_in_use()
    assert_serves(cluster)


def test_no_room_at_the_decode_node(cluster: NodeCluster) -> None:
    """160 pages hold two of these prompts, not three."""
    running = [start_generating(cluster, prompt=LONG_PROMPT) for _ in range(2)]
    refused = cluster.post("/v1/completions", prompt=LONG_PROMPT, max_tokens=50)
    assert refused.status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert int(refused.headers["retry-after"]) >= 1
    assert "KV pages" in refused.json()["error"]["message"]
    for streaming in running:
        streaming.hang_up()
    cluster.assert_no_page_in_use()
    assert_serves(cluster)


def test_decode_runs_out_of_pages_and_nobody_is_lost(cluster: NodeCluster) -> None:
    """Four sequences outgrow the pool: some are preempted and computed again, all finish."""
    prompts = [LONG_PROMPT[number : number + 560] for number in range(4)]  # 36 pages of 160 each
    fields = {"max_tokens": 300, "return_token_ids": True}  # 55 in the end: three are too many
    running = [Streaming(cluster, prompt=prompt, **fields) for prompt in prompts]
    for streaming in running:
        streaming.join()
        assert streaming.status == httpx.codes.OK
        assert len(streamed_tokens(streaming)) == 300
    assert cluster.counter("decode", "pdspan_preemptions_total") > 0
    cluster.assert_no_page_in_use()


def streamed_tokens(streaming: Streaming) -> list[int]:
    return [t for event in streaming.events for c in event["choices"] for t in c["token_ids"]]


def test_a_deadline(cluster: NodeCluster) -> None:
    fields = {"prompt": LONG_PROMPT, "max_tokens": 100, "timeout": 0.3}
    answer = cluster.post("/v1/completions", cache_salt=str(time.time_ns()), **fields)
    assert answer.status_code == httpx.codes.GATEWAY_TIMEOUT
    assert "deadline" in answer.json()["error"]["message"]
    streaming = Streaming(cluster, prompt="Once", max_tokens=1500, timeout=2)
    streaming.join()
    assert "deadline" in streaming.error["message"], "in mid-stream it is an error event"
    cluster.assert_no_page_in_use()
    assert_serves(cluster)


def test_a_request_that_can_never_fit(cluster: NodeCluster) -> None:
    answer = cluster.post("/v1/completions", prompt=[7] * 3000, max_tokens=5)
    assert answer.status_code == httpx.codes.BAD_REQUEST
    assert "3000" in answer.json()["error"]["message"]


def test_a_restart_drains(cluster: NodeCluster) -> None:
    """SIGTERM: what runs is finished, then the process ends with status 0."""
    streaming = Streaming(cluster, prompt=STORY, max_tokens=60)
    streaming.wait_for_events(3)
    assert cluster.process("decode").stop() == 0
    streaming.join()
    assert "choices" in streaming.events[-1], streaming.events[-1]
    assert streaming.events[-1]["choices"][0]["finish_reason"] == "length"
    restart(cluster, "decode")
    assert_serves(cluster)


def test_a_drain_waits_for_pages_that_have_not_been_sent_yet(cluster: NodeCluster) -> None:
    """The decode node has promised pages and hears SIGTERM while prefill still computes."""
    streaming = Streaming(cluster, prompt=LONG_PROMPT, max_tokens=5, cache_salt=str(time.time_ns()))
    wait_until(lambda: cluster.loads()["prefill"].num_running == 1)
    assert cluster.process("decode").stop() == 0
    streaming.join()
    assert streaming.status == httpx.codes.OK
    assert streaming.events[-1]["choices"][0]["finish_reason"] == "length"
    restart(cluster, "decode")
    assert_serves(cluster)
