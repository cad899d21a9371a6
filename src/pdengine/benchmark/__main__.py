"""``python -m pdengine.benchmark --model DIR``: a task a line comes in, what it took goes out.

Tasks and answers are JSON objects on standard input and output, so that whoever compares engines
can take turns between processes that stay loaded. An answer to a task that cannot be done has
``error`` alone. Ends with its input.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch

from pdcore.errors import PdspanError
from pdcore.settings import EngineSettings
from pdengine.benchmark.arm import EngineArm, Timed
from pdengine.engine import Engine

EXAMPLE = """\
example:
  echo '{"task": "decode", "batch": 8, "context": 128, "steps": 32}' |
    python -m pdengine.benchmark --model DIR --threads 2

tasks:
  {"task": "prefill", "tokens": 2048}
  {"task": "decode", "batch": 8, "context": 128, "steps": 32}
  {"task": "read"}                          bytes of memory, by all threads
"""


def main() -> int:
    arguments = _parser().parse_args()
    try:
        engine = Engine.load(arguments.model, _settings(arguments))
    except PdspanError as error:
        print(f"pdengine.benchmark: error: {error.message}", file=sys.stderr)
        return 1
    arm = EngineArm(engine, chunk_tokens=arguments.chunk_tokens)
    _say({"ready": True, "dtype": engine.layout.dtype, "threads": torch.get_num_threads()})
    for line in sys.stdin:
        try:
            _say(_answer(arm, engine, json.loads(line)))
        except (PdspanError, ValueError, KeyError, TypeError) as error:
            _say({"error": str(error) or type(error).__name__})
    return 0


def _answer(arm: EngineArm, engine: Engine, task: Mapping[str, object]) -> Mapping[str, object]:
    match task:
        case {"task": "prefill", "tokens": int(tokens)}:
            return asdict(arm.prefill(tokens))
        case {"task": "decode", "batch": int(batch), "context": int(context), "steps": int(steps)}:
            timed: Timed = arm.decode(batch, context, steps)
            mean_context = batch * (context + (steps - 1) // 2)
            return {**asdict(timed), "step_bytes": engine.least_step_bytes(mean_context)}
        case {"task": "read"}:
            return asdict(arm.read())
    raise ValueError(f"no such task: {json.dumps(task)}; see --help")


def _say(answer: Mapping[str, object]) -> None:
    print(json.dumps(answer), flush=True)


def _settings(arguments: argparse.Namespace) -> EngineSettings:
    return EngineSettings(
        dtype=arguments.dtype,
        weights=arguments.weights,
        schedule=arguments.schedule,
        threads=arguments.threads,
        kv_memory_bytes=arguments.kv_bytes,
        prefix_cache=False,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pdengine.benchmark",
        description="Time an engine: prefill, decode steps, reading memory.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults = EngineSettings()
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="a checkpoint")
    parser.add_argument("--dtype", default=defaults.dtype, help="as engine.dtype (default: auto)")
    parser.add_argument("--weights", default=defaults.weights, help="full or int8")
    parser.add_argument("--schedule", default=defaults.schedule, help="as engine.schedule")
    parser.add_argument("--threads", type=int, metavar="N", help="default: as many as torch likes")
    parser.add_argument(
        "--chunk-tokens",
        type=int,
        default=2048,
        metavar="N",
        help="most tokens of a prompt in one step (default: 2048)",
    )
    parser.add_argument(
        "--kv-bytes", type=int, default=2**30, metavar="N", help="KV memory (default: 1 GiB)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
