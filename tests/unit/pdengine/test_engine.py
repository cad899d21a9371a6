"""Steps of the engine: which tokens come out, and that nothing but the sequence decides them."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from pdcore.errors import ConfigError
from pdcore.generation import GenerationRequest, SamplingParams
from pdcore.settings import EngineSettings
from pdengine.batch import Slice, StepBatch
from pdengine.engine import Engine
from pdengine.sequence import Sequence
from sample_request import request
from tiny_checkpoints import VOCAB, TinyModel, greedy_tokens

SETTINGS = EngineSettings(dtype="float32", device="cpu", threads=1, num_pages=64)
NUM_NEW = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    model_dir = tmp_path_factory.mktemp("tiny")
    return model_dir, TinyModel("qwen3").save(model_dir)


@pytest.fixture
def engine(model: tuple[Path, PreTrainedModel]) -> Engine:
    return Engine.load(model[0], SETTINGS)


def prompt(length: int) -> tuple[int, ...]:
    return tuple(random.Random(length).choices(range(VOCAB), k=length))


def wanted(length: int, temperature: float = 0.0, **options: int) -> GenerationRequest:
    sampling = SamplingParams(seed=1, temperature=temperature)
    return replace(request(prompt(length), 100, **options), sampling=sampling)


class Pages:
    """Hands out pages of an engine's pool in random order."""

    def __init__(self, engine: Engine) -> None:
        self._free = list(range(engine.kv.num_pages))
        random.Random(0).shuffle(self._free)
        self._layout = engine.layout

    def sequence(self, request: GenerationRequest) -> Sequence:
        num_tokens = len(request.prompt_token_ids) + NUM_NEW
        pages = [self._free.pop() for _ in range(self._layout.num_pages(num_tokens))]
        return Sequence(request, 0, pages)


def generate(engine: Engine, sequences: list[Sequence], chunk: int = 1000) -> list[list[int]]:
    """``NUM_NEW`` tokens of each, all in the same steps, at most ``chunk`` tokens of one a step."""
    while running := [s for s in sequences if len(s.output_token_ids) < NUM_NEW]:
        slices = [Slice(s, min(chunk, s.num_remaining), (0,)) for s in running]
        for piece, tokens in zip(slices, engine.run(slices), strict=True):
            piece.sequence.num_computed += piece.num_tokens
            for token in tokens:
                piece.sequence.append(token)
    return [sequence.output_token_ids for sequence in sequences]


def test_greedy_tokens_equal_those_of_transformers(
    engine: Engine, model: tuple[Path, PreTrainedModel]
) -> None:
    lengths = (1, 15, 16, 17, 50)
    expected = [greedy_tokens(model[1], list(prompt(n)), NUM_NEW) for n in lengths]
    pages = Pages(engine)
    assert generate(engine, [pages.sequence(wanted(n)) for n in lengths]) == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("page_tokens", [8, 64])
@pytest.mark.parametrize("chunk", [1, 7, 16])
def test_tokens_depend_neither_on_chunks_nor_pages_nor_company(
    engine: Engine,
    model: tuple[Path, PreTrainedModel],
    temperature: float,
    page_tokens: int,
    chunk: int,
) -> None:
    lengths = (3, 20, 33)
    pages = Pages(engine)
    together = generate(engine, [pages.sequence(wanted(n, temperature)) for n in lengths])
    other = Engine.load(model[0], replace(SETTINGS, page_tokens=page_tokens))
    other_pages = Pages(other)
    for length, expected in zip(lengths, together, strict=True):
        alone = other_pages.sequence(wanted(length, temperature))
        assert generate(other, [alone], chunk) == [expected]


def test_a_slice_short_of_the_end_samples_nothing(engine: Engine) -> None:
    pages = Pages(engine)
    short, silent, whole = (pages.sequence(wanted(n)) for n in (20, 5, 9))
    slices = [Slice(short, 19, (0,)), Slice(silent, 5, ()), Slice(whole, 9, (0,))]
    assert engine.run(slices) == [(), (), *engine.run([Slice(whole, 9, (0,))])]


def test_run_changes_no_sequence(engine: Engine) -> None:
    sequence = Pages(engine).sequence(wanted(20))
    engine.run([Slice(sequence, 20, (0,))])
    assert (sequence.num_computed, sequence.num_tokens) == (0, 20)


def test_first_tokens_of_several_choices_come_from_one_row(engine: Engine) -> None:
    pages = Pages(engine)
    prompts = [pages.sequence(wanted(n, temperature=1.0, num_choices=4)) for n in (20, 9)]
    together = engine.run([Slice(s, s.num_tokens, (0, 1, 2, 3)) for s in prompts])
    alone = [
        tuple(engine.run([Slice(s, s.num_tokens, (choice,))])[0][0] for choice in range(4))
        for s in prompts
    ]
    assert together == alone
    assert len(set(together[0])) > 1


def test_a_copied_page_continues_the_sequence(engine: Engine) -> None:
    pages = Pages(engine)
    original, copy = pages.sequence(wanted(20)), pages.sequence(wanted(20))
    engine.run([Slice(original, 19, (0,))])
    for source, target in zip(original.pages, copy.pages, strict=True):
        engine.copy_page(source, target)
    original.num_computed = copy.num_computed = 19
    first, second = engine.run([Slice(original, 1, (0,)), Slice(copy, 1, (0,))])
    assert first == second


def test_kv_moves_to_another_engine_as_bytes(
    engine: Engine, model: tuple[Path, PreTrainedModel]
) -> None:
    expected = generate(engine, [Pages(engine).sequence(wanted(40))])
    other = Engine.load(model[0], SETTINGS)
    source = Sequence(wanted(40), 0, [9, 8, 7, 6])
    engine.run([Slice(source, 40, (0,))])
    target = Sequence(wanted(40), 0, [1, 30, 2, 40], num_computed=39)
    data = b"".join(engine.kv.read(source.pages, 0, engine.layout.num_layers))
    other.kv.write(target.pages, 0, other.layout.num_layers, memoryview(data))
    assert generate(other, [target]) == expected


def test_layouts_of_equal_models_are_equal_and_of_others_not(
    engine: Engine, model: tuple[Path, PreTrainedModel], tmp_path: Path
) -> None:
    TinyModel("qwen3", options={"rms_norm_eps": 1e-5}).save(tmp_path)
    assert engine.layout == Engine.load(model[0], SETTINGS).layout
    difference = engine.layout.difference(Engine.load(tmp_path, SETTINGS).layout)
    assert difference is not None
    assert difference.startswith("model:")


def test_the_pool_is_sized_by_memory_and_bounds_a_sequence(
    engine: Engine, model: tuple[Path, PreTrainedModel]
) -> None:
    page_bytes = engine.layout.page_bytes
    memory = replace(SETTINGS, num_pages=None, kv_memory_bytes=5 * page_bytes + 1)
    small = Engine.load(model[0], memory)
    assert small.pool.counts().total == small.kv.num_pages == 5
    assert small.max_tokens == 5 * 16
    assert engine.max_tokens == engine.config.max_tokens == 512


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (replace(SETTINGS, num_pages=1), "1 pages of .* bytes; it needs 2"),
        (replace(SETTINGS, num_pages=None, kv_memory_bytes=1), "0 pages"),
        (replace(SETTINGS, num_pages=10**13), "no memory on cpu for a KV pool of"),
        (replace(SETTINGS, device="tpu"), "engine.device is 'tpu'; one of auto, cpu, cuda"),
        (replace(SETTINGS, attention="magic"), "engine.attention is 'magic'"),
    ],
)
def test_settings_that_cannot_be_served_are_refused(
    model: tuple[Path, PreTrainedModel], settings: EngineSettings, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Engine.load(model[0], settings)


def test_a_batch_is_flat_and_ragged() -> None:
    long = Sequence(request((5, 6, 7, 8, 9), 4), 0, [3, 1], num_computed=2)
    short = Sequence(request((1,), 4), 0, [2])
    batch = StepBatch.of([Slice(long, 3, (0,)), Slice(short, 1, (0,))], 4, torch.device("cpu"))
    assert batch.token_ids.tolist() == [7, 8, 9, 1]
    assert batch.positions.tolist() == [2, 3, 4, 0]
    assert batch.slots.tolist() == [14, 15, 4, 8]
    assert (batch.query_lengths, batch.context_lengths) == ((3, 1), (5, 1))
    assert batch.page_tables == ((3, 1), (2,))
    assert batch.context_slots(0).tolist() == [12, 13, 14, 15, 4]
    assert not batch.only_decode
