"""vLLM's CPU build as an arm: the same tasks, line by line, as ``python -m pdengine.benchmark``.

Runs in an environment of its own and imports nothing of ours. The engine is stepped in this
process, so that a decode batch can be prefilled untimed and its steps be counted.
"""

import argparse
import importlib
import json
import os
import random
import sys
from itertools import count
from time import perf_counter
from typing import Any

_OUTPUT = os.dup(1)  # vLLM writes to standard output, where only answers may stand
os.dup2(2, 1)
vllm: Any = importlib.import_module("vllm")


class VllmArm:
    def __init__(self, model: str, kv_block_tokens: int, seed: int = 0) -> None:
        self._engine: Any = vllm.LLM(
            model=model,
            dtype="bfloat16",
            block_size=kv_block_tokens,
            max_model_len=8192,
            max_num_batched_tokens=4096,
            max_num_seqs=64,
            enable_prefix_caching=False,
            skip_tokenizer_init=True,
            disable_log_stats=True,
        ).llm_engine
        self._vocabulary = range(self._engine.model_config.get_vocab_size())
        self._random = random.Random(seed)
        self._names = map(str, count())

    def prefill(self, num_tokens: int) -> tuple[int, float]:
        self._add(num_tokens, 1)
        started = perf_counter()
        while self._engine.has_unfinished_requests():
            self._engine.step()
        return num_tokens, perf_counter() - started

    def decode(self, batch: int, context: int, steps: int) -> tuple[int, float]:
        names = [self._add(context - 1, context + 8 * steps) for _ in range(batch)]
        waiting = set(names)
        while waiting:
            waiting -= {output.request_id for output in self._engine.step()}
        self._engine.step()
        before = after = self._num_tokens(self._engine.step())
        started = perf_counter()
        for _ in range(steps):
            after = self._num_tokens(self._engine.step())
        seconds = perf_counter() - started
        self._engine.abort_request(names)
        while self._engine.has_unfinished_requests():
            self._engine.step()
        return after - before, seconds

    def _add(self, num_tokens: int, max_tokens: int) -> str:
        name = next(self._names)
        prompt = {"prompt_token_ids": self._random.choices(self._vocabulary, k=num_tokens)}
        params = vllm.SamplingParams(
            temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False
        )
        self._engine.add_request(name, prompt, params)
        return name

    @staticmethod
    def _num_tokens(outputs: list[Any]) -> int:
        return sum(len(output.outputs[0].token_ids) for output in outputs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pdlab.engine.vllm_end")
    parser.add_argument("--model", required=True, metavar="DIR")
    parser.add_argument("--block-tokens", type=int, default=32, metavar="N")
    arguments = parser.parse_args()
    arm = VllmArm(arguments.model, arguments.block_tokens)
    with os.fdopen(_OUTPUT, "w") as answers:
        _say(answers, {"ready": True, "dtype": "bfloat16"})
        for line in sys.stdin:
            match json.loads(line):
                case {"task": "prefill", "tokens": tokens}:
                    done = arm.prefill(tokens)
                case {"task": "decode", "batch": batch, "context": context, "steps": steps}:
                    done = arm.decode(batch, context, steps)
                case task:
                    _say(answers, {"error": f"no such task: {task}"})
                    continue
            _say(answers, {"tokens": done[0], "seconds": done[1]})


def _say(answers: Any, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
