"""Measures the figures of docs/results/first-version.md on this machine and prints them.

    .venv/bin/python scripts/measure_first_version.py --json docs/results/first-version.json

Three parts, one after the other: the engine alone in this process (prefill,
decode), a cluster of three processes (start-up, time to first token disaggregated and colocated,
interleaved), and what its timeline says of the transfer. Every figure is the median of its
repetitions, all of which are in the JSON. Run it on a machine that does nothing else.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from rich.progress import track

from pdcore.generation import GenerationRequest, RequestId, SamplingParams
from pdcore.settings import EngineSettings
from pdcore.version import __version__
from pdengine.batch import Slice
from pdengine.engine import Engine
from pdengine.sequence import Sequence
from pdspan.arguments import DEFAULT_MODEL
from pdspan.models import resolve_model

PROMPT_TOKENS = 2048
CONTEXT_TOKENS = 128
STEP_TOKENS = EngineSettings().step_tokens
DECODE_STEPS = 32


def main() -> int:
    arguments = parse()
    model_dir = resolve_model(DEFAULT_MODEL, lambda task, fraction: None)
    results = {"host": host(), "version": __version__, "commit": commit(), "engine": {}}
    for dtype in ("bfloat16", "float32"):
        results["engine"][dtype] = measure_engine(
            model_dir, dtype, arguments.threads, arguments.repetitions
        )
    results["cluster"] = measure_cluster(arguments.threads, arguments.repetitions)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    print_table(results)
    return 0


def parse() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=5, help="of each figure (default: 5)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="torch's, per process")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every repetition here")
    return parser.parse_args()


def measure_engine(
    model_dir: Path, dtype: str, threads: int, repetitions: int
) -> dict[str, list[float]]:
    """Tokens per second: one 2048-token prompt in chunks; decode steps at batch 1 and 8."""
    engine = Engine.load(model_dir, EngineSettings(dtype=dtype, threads=threads))
    prefill_tokens_s(engine)  # the first one warms the caches
    figures: dict[str, list[float]] = {"prefill_tokens_s": [], "decode_1": [], "decode_8": []}
    for _ in track(range(repetitions), f"engine, {dtype}"):
        figures["prefill_tokens_s"].append(prefill_tokens_s(engine))
        figures["decode_1"].append(decode_tokens_s(engine, 1))
        figures["decode_8"].append(decode_tokens_s(engine, 8))
    return figures


def prefill_tokens_s(engine: Engine) -> float:
    with sequences(engine, 1, PROMPT_TOKENS) as (prompt,):
        start_s = time.perf_counter()
        prefill(engine, prompt)
        return PROMPT_TOKENS / (time.perf_counter() - start_s)


def decode_tokens_s(engine: Engine, batch: int) -> float:
    with sequences(engine, batch, CONTEXT_TOKENS) as running:
        for sequence in running:
            sequence.append(prefill(engine, sequence))
        start_s = time.perf_counter()
        for _ in range(DECODE_STEPS):
            slices = [Slice(sequence, 1, (0,)) for sequence in running]
            for sequence, (token,) in zip(running, engine.run(slices), strict=True):
                sequence.num_computed += 1
                sequence.append(token)
        return batch * DECODE_STEPS / (time.perf_counter() - start_s)


def prefill(engine: Engine, sequence: Sequence) -> int:
    """In chunks, as a node does it; the first token."""
    tokens: tuple[int, ...] = ()
    while sequence.num_remaining:
        num_tokens = min(STEP_TOKENS, sequence.num_remaining)
        (tokens,) = engine.run([Slice(sequence, num_tokens, (0,))])
        sequence.num_computed += num_tokens
    return tokens[0]


@contextmanager
def sequences(engine: Engine, count: int, num_tokens: int) -> Iterator[list[Sequence]]:
    """Prompts of pseudo-random tokens with room to generate; their pages are given back."""
    running = []
    for number in range(count):
        prompt = tuple((number + 7919 * i) % 49000 + 20 for i in range(num_tokens))
        request = GenerationRequest(
            RequestId(f"measure-{number}"), prompt, SamplingParams(0, temperature=0.0), 10**6
        )
        pages = engine.pool.take(engine.layout.num_pages(num_tokens + DECODE_STEPS + 1))
        assert pages is not None, "the pool holds all of them"
        running.append(Sequence(request, 0, pages))
    try:
        yield running
    finally:
        for sequence in running:
            engine.pool.release(sequence.give_up_pages())


def measure_cluster(threads: int, repetitions: int) -> dict[str, Any]:
    """A second start of ``pdspan up``, then the same request disaggregated and colocated."""
    command = [sys.executable, "-m", "pdspan", "up", "--port", "0", "--json"]
    command += ["--set", f"engine.threads={threads}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        try:
            arms: dict[str, list[Any]] = {"disaggregated": [], "colocated": []}
            for number in track(range(repetitions + 1), "cluster"):
                for arm, rows in arms.items():
                    row = first_token(ready["url"], arm, salt=f"{arm}-{number}")
                    if number:  # the first of each arm is the warm-up
                        rows.append(row)
        finally:
            process.terminate()
    return {"ready_s": ready["ready_s"], **arms}


def first_token(url: str, arm: str, salt: str) -> dict[str, Any]:
    """Seconds until the first streamed token of a 2048-token prompt, and the timeline."""
    body = {
        "prompt": [(3 + 7919 * i) % 49000 + 20 for i in range(PROMPT_TOKENS)],
        "max_tokens": 16,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "timeline": True,
        "cache_salt": salt,
        "kv_transfer_params": {"placement": arm},
    }
    start_s = time.perf_counter()
    events, ttft_s = [], None
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=120) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                ttft_s = ttft_s or time.perf_counter() - start_s
                events.append(json.loads(line.removeprefix("data: ")))
    return {"ttft_s": ttft_s, "timeline": events[-1]["timeline"]}


def print_table(results: dict[str, Any]) -> None:
    for dtype, figures in results["engine"].items():
        for name, values in figures.items():
            print(f"{dtype} {name}: {statistics.median(values):.1f} tokens/s")
    cluster = results["cluster"]
    print(f"pdspan up, second start: {cluster['ready_s']:.1f} s to ready")
    for arm in ("disaggregated", "colocated"):
        ttft_s = statistics.median(row["ttft_s"] for row in cluster[arm])
        print(f"time to first token, 2048 tokens, {arm}: {ttft_s:.3f} s")


def host() -> dict[str, Any]:
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "python": platform.python_version()}


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
