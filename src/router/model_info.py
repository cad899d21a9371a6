"""What the router must know of the model besides its text: name, vocabulary, end-of-text tokens.

Read once, at start, from ``config.json`` and ``generation_config.json``. No weights are opened. How
long a context may be is not read here: the nodes say it, since RoPE scaling may reach beyond
``max_position_embeddings`` and a pool of pages may not reach as far.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdcore.errors import ConfigError
from pdcore.settings import ModelSettings
from router.bodies import shown


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """``name`` is what clients call it."""

    name: str
    vocab_size: int
    eos_token_ids: tuple[int, ...]


def load_model_info(model_dir: Path, settings: ModelSettings) -> ModelInfo:
    """Raises ConfigError that names the file and the field."""
    config = read_json(model_dir / "config.json")
    return ModelInfo(
        name=settings.public_name,
        vocab_size=_positive(config, "vocab_size", model_dir),
        eos_token_ids=_eos_token_ids(config, model_dir),
    )


def read_json(path: Path) -> dict[str, Any]:
    """The object that ``path`` holds; ConfigError when there is none."""
    text = read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # digits and brackets without end included
        raise ConfigError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: expected a JSON object")
    return value


def read_text(path: Path) -> str:
    """The text of a file of the model; ConfigError when it cannot be read or is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path.parent} is not a model directory: it has no {path.name}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid UTF-8: {error}") from None


def _eos_token_ids(config: dict[str, Any], model_dir: Path) -> tuple[int, ...]:
    """``generation_config.json`` speaks first, as in transformers; either may be a list."""
    generation = model_dir / "generation_config.json"
    value = read_json(generation).get("eos_token_id") if generation.exists() else None
    if value is None:
        value = config.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token) is int and token >= 0 for token in ids):
        raise ConfigError(f"{model_dir}: eos_token_id is {shown(value)}; expected token ids")
    return tuple(ids)


def _positive(config: dict[str, Any], key: str, model_dir: Path) -> int:
    value = config.get(key)
    if type(value) is not int or value < 1:
        raise ConfigError(
            f"{model_dir}/config.json: {key} is {shown(value)}; expected a whole number"
        )
    return value
