"""The default model in float32: 20 prompts, 64 greedy tokens each, all as transformers has them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from model_rig import ModelRig
from pdcore.generation import SamplingParams
from pdcore.settings import EngineSettings
from pdengine.batch import Slice
from pdengine.engine import Engine
from pdengine.sequence import Sequence
from sample_request import request
from tiny_checkpoints import transformers_logits

pytestmark = pytest.mark.model

NUM_NEW = 64
STEP_TOKENS = 64
REPOSITORY = Path(__file__).parents[3]
PROMPTS = (
    "The capital of France is",
    "Once upon a time",
    "def fibonacci(n):\n    ",
    "The three primary colours are",
    "Water boils at",
    "To be, or not to be,",
    "A recipe for pancakes:\n1.",
    "SELECT name FROM",
    "The largest planet of the solar system",
    "In 1969, the first",
    "Dear Sir or Madam,\n",
    "List of European capitals: Paris, Rome,",
    "Die Hauptstadt von Deutschland ist",
    "import numpy as np\n\n",
    "Photosynthesis is the process by which",
    "Q: What is 7 times 8?\nA:",
    "The quick brown fox",
    "# How to grow tomatoes\n\n",
    "She opened the door and saw",
    "1, 1, 2, 3, 5, 8,",
)


def test_greedy_tokens_equal_those_of_transformers(default_model: Path) -> None:
    tokenizer = Tokenizer.from_file(str(default_model / "tokenizer.json"))
    prompts = [tokenizer.encode(text).ids for text in PROMPTS]
    outputs = greedy_outputs(default_model, prompts)
    reference = AutoModelForCausalLM.from_pretrained(default_model, dtype=torch.float32)
    for prompt, output in zip(prompts, outputs, strict=True):
        # Where all earlier tokens agree, the next greedy one is the largest logit after them.
        logits = transformers_logits(reference, prompt + output[:-1])
        assert logits[len(prompt) - 1 :].argmax(dim=1).tolist() == output


def test_weights_in_8_bits_cost_little_quality(default_model: Path) -> None:
    """Perplexity of the first 512 tokens of a page of this repository; 0.6 % more was measured."""
    tokenizer = Tokenizer.from_file(str(default_model / "tokenizer.json"))
    text = (REPOSITORY / "docs" / "transfer-modes.md").read_text()
    token_ids = tokenizer.encode(text).ids[:512]
    full, int8 = (
        perplexity(default_model, token_ids, as_int8=as_int8) for as_int8 in (False, True)
    )
    assert 0.97 * full < int8 < 1.03 * full


def perplexity(model_dir: Path, token_ids: list[int], *, as_int8: bool) -> float:
    """In float32, by our kernels, in steps small enough for those."""
    rig = ModelRig(model_dir, attention="cpu", as_int8=as_int8)
    chunks = [STEP_TOKENS] * (len(token_ids) // STEP_TOKENS)
    logits = rig.in_chunks(rig.sequence(token_ids), chunks)[:-1]
    return float(cross_entropy(logits, torch.tensor(token_ids[1:])).exp())


def greedy_outputs(model_dir: Path, prompts: list[list[int]]) -> list[list[int]]:
    """``NUM_NEW`` tokens for each prompt, in one batch."""
    settings = EngineSettings(dtype="float32", device="cpu", num_pages=len(prompts) * 8)
    engine = Engine.load(model_dir, settings)
    greedy = SamplingParams(seed=0, temperature=0.0)
    sequences = [
        Sequence(
            replace(request(tuple(prompt), NUM_NEW), sampling=greedy), 0, range(i * 8, i * 8 + 8)
        )
        for i, prompt in enumerate(prompts)
    ]
    for _ in range(NUM_NEW):
        slices = [Slice(sequence, sequence.num_remaining, (0,)) for sequence in sequences]
        for sequence, (token,) in zip(sequences, engine.run(slices), strict=True):
            sequence.num_computed = sequence.num_tokens
            sequence.append(token)
    return [sequence.output_token_ids for sequence in sequences]
