"""A whole model directory that can be served in a second: random weights, a real tokenizer."""

import json
from pathlib import Path

from tiny_checkpoints import TinyModel
from tiny_text import TOKENIZER_CONFIG, byte_level_tokenizer


def save_tiny_model(directory: Path) -> Path:
    """Write it, and give ``directory`` back. Its tokens are worth nothing, but always the same."""
    directory.mkdir(parents=True, exist_ok=True)
    TinyModel("llama").save(directory)
    byte_level_tokenizer().save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    return directory
