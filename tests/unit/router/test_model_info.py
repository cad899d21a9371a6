import json
from pathlib import Path
from typing import Any

import pytest

from pdcore.errors import ConfigError
from pdcore.settings import ModelSettings
from router.model_info import ModelInfo, load_model_info

CONFIG = {"vocab_size": 100, "eos_token_id": 2}


def load(directory: Path, config: Any, generation: Any = None) -> ModelInfo:
    (directory / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (directory / "generation_config.json").write_text(json.dumps(generation))
    return load_model_info(directory, ModelSettings(path="some/where/tiny"))


def test_the_name_is_the_last_part_of_the_path_unless_it_is_given(tmp_path: Path) -> None:
    assert load(tmp_path, CONFIG) == ModelInfo("tiny", 100, (2,))
    settings = ModelSettings(path="some/where/tiny", served_name="mine")
    assert load_model_info(tmp_path, settings).name == "mine"


@pytest.mark.parametrize(
    ("generation", "expected"),
    [({"eos_token_id": [5, 6]}, (5, 6)), ({"eos_token_id": 7}, (7,)), ({}, (2,))],
)
def test_generation_config_speaks_first(
    tmp_path: Path, generation: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert load(tmp_path, CONFIG, generation).eos_token_ids == expected


def test_a_model_may_have_no_end_of_text(tmp_path: Path) -> None:
    assert load(tmp_path, CONFIG | {"eos_token_id": None}).eos_token_ids == ()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CONFIG | {"vocab_size": "many"}, "vocab_size is 'many'"),
        ({}, "vocab_size is None"),
        (CONFIG | {"eos_token_id": "</s>"}, "eos_token_id is '</s>'"),
        ([1], "expected a JSON object"),
    ],
)
def test_a_wrong_config_names_the_field(tmp_path: Path, config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, config)


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a model directory"):
        load_model_info(tmp_path / "none", ModelSettings())
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="not valid JSON"):
        load_model_info(tmp_path, ModelSettings())


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "not valid JSON: maximum recursion"),
        (b'{"vocab_size": ' + b"1" * 5000 + b"}", "not valid JSON: Exceeds the limit"),
        (b"\xff", "not valid UTF-8"),
        (b"", "not valid JSON"),
        (b"null", "expected a JSON object"),
        (b'{"vocab_size": 100, "eos_token_id": [true]}', r"eos_token_id is \[True\]"),
    ],
)
def test_a_broken_file_is_named_in_one_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load_model_info(tmp_path, ModelSettings())
    assert str(tmp_path) in caught.value.message and "\n" not in caught.value.message


def test_a_directory_in_a_files_place(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ConfigError, match=r"config\.json: cannot be read: Is a directory"):
        load_model_info(tmp_path, ModelSettings())
