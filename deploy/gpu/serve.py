"""Serves with one prefill and one decode process, and compares their tokens with colocated ones.

    python deploy/gpu/serve.py --model DIR --device cuda --attention flashinfer

Runs ``pdspan up``, then each prompt twice: disaggregated, and by the decode node alone. Each arm
has a cache salt of its own, so that no prefix hit stands in for a transfer. Prints what it saw as
JSON; exit status 1 when an answer is missing, no page was sent, or the tokens differ.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

ARMS = ("disaggregated", "colocated")
# The first fits in a page, the second needs several chunks and frames.
PROMPTS = {"short": "What is a page?", "long": "A page holds the keys and values of tokens. " * 40}
MAX_TOKENS = 32


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--attention", required=True)
    arguments = parser.parse_args()
    settings = (f"engine.device={arguments.device}", f"engine.attention={arguments.attention}")
    with cluster(arguments.model, settings) as up, httpx.Client(timeout=120) as client:
        results = {}
        for name, prompt in PROMPTS.items():
            answers = {arm: ask(client, up, prompt, arm) for arm in ARMS}
            results[name] = compared(answers)
    print(json.dumps({"model": up["model"], "ready_s": up["ready_s"], "prompts": results}))
    return 0 if all(result["passed"] for result in results.values()) else 1


@contextmanager
def cluster(model: str, settings: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """``pdspan up``, until the block is left; what it said when it was ready."""
    command = [sys.executable, "-m", "pdspan", "up", "--json", "--port", "0", "--model", model]
    command += [part for setting in settings for part in ("--set", setting)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            if not ready:
                raise SystemExit(f"pdspan up ended with status {process.wait()}")
            yield json.loads(ready)
        finally:
            process.send_signal(signal.SIGINT)


def ask(client: httpx.Client, up: dict[str, Any], prompt: str, arm: str) -> dict[str, Any]:
    """One greedy completion: its tokens, seconds and transfer."""
    body = {
        "model": up["model"],
        "prompt": prompt,
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "cache_salt": arm,
        "return_token_ids": True,
        "timeline": True,
        "kv_transfer_params": {"placement": arm},
    }
    started_s = time.perf_counter()
    reply = client.post(f"{up['url']}/v1/completions", json=body)
    seconds = time.perf_counter() - started_s
    if not reply.is_success:
        raise SystemExit(f"{arm}: {reply.status_code}: {reply.text}")
    answer = reply.json()
    return {
        "token_ids": answer["choices"][0]["token_ids"],
        "prompt_tokens": answer["usage"]["prompt_tokens"],
        "seconds": round(seconds, 3),
        "transfer": answer["timeline"]["transfer"],
    }


def compared(answers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    apart, together = (answers[arm] for arm in ARMS)
    same = apart["token_ids"] == together["token_ids"]
    sent = apart["transfer"] is not None and together["transfer"] is None
    complete = len(apart["token_ids"]) == MAX_TOKENS
    return {"passed": same and sent and complete, "same_tokens": same, **answers}


if __name__ == "__main__":
    sys.exit(main())
