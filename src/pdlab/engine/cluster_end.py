"""A whole cluster as an arm: router, prefill and decode node on loopback, asked over HTTP.

Answers ``{"task": "prefill", "tokens": N}``, line by line, with the time to the first token that a
client sees: prefill, transfer, and everything between. Between tasks its nodes are stopped, as any
other engine is; a short request, not timed, finds their connections again.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

from pdcore.errors import PdspanError, PeerUnavailable
from pdlab.client import Call
from pdlab.client_process import ClientProcess
from pdlab.cluster import ServingCluster
from pdlab.link import open_link
from pdlab.link.profile import LinkProfile

MODEL_NAME = "model"
TIMEOUT_S = 120.0
FIRST_TOKEN_ID = 3  # those before it often mean the beginning or the end of a text
NUM_TOKEN_IDS = 100
SHORT_TOKENS = 32


class ClusterArm:
    def __init__(self, cluster: ServingCluster, client: ClientProcess, seed: int = 0) -> None:
        self._cluster = cluster
        self._client = client
        self._random = random.Random(seed)

    def first_token_s(self, num_tokens: int) -> float:
        """Raises PeerUnavailable when the request is not answered."""
        with self._cluster.running():
            self._cluster.wait_until_ready(self._client)
            self._ask(SHORT_TOKENS)
            return self._ask(num_tokens)

    def _ask(self, num_tokens: int) -> float:
        token_ids = range(FIRST_TOKEN_ID, FIRST_TOKEN_ID + NUM_TOKEN_IDS)
        body = {
            "model": MODEL_NAME,
            "prompt": self._random.choices(token_ids, k=num_tokens),
            "max_tokens": 1,
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": True,
            "return_token_ids": True,
        }
        (answer,) = self._client.call(self._cluster.url, [Call(0, body)], TIMEOUT_S)
        if answer.ttft_s is None:
            raise PeerUnavailable(f"the cluster gave no token: {answer.error or answer.status}")
        return answer.ttft_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pdlab.engine.cluster_end")
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument("--threads", type=int, required=True, metavar="N", help="of each node")
    arguments = parser.parse_args()
    settings = {
        "model": {"path": arguments.model, "served_name": MODEL_NAME},
        "engine": {"threads": arguments.threads},
    }
    with (
        tempfile.TemporaryDirectory() as logs,
        open_link("loopback", LinkProfile()) as link,
        ServingCluster(link, settings, Path(logs)) as cluster,
        ClientProcess(link.b) as client,
    ):
        cluster.wait_until_ready(client)
        cluster.pause()
        arm = ClusterArm(cluster, client)
        _say({"ready": True, "dtype": "as its nodes choose"})
        for line in sys.stdin:
            _say(_answer(arm, line))


def _answer(arm: ClusterArm, line: str) -> dict[str, object]:
    match json.loads(line):
        case {"task": "prefill", "tokens": int(tokens)}:
            try:
                return {"tokens": tokens, "seconds": arm.first_token_s(tokens)}
            except PdspanError as error:
                return {"error": error.message}
        case task:
            return {"error": f"no such task: {json.dumps(task)}"}


def _say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
