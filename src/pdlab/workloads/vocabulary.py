"""Which token ids made-up prompts are drawn from."""

import json
from pathlib import Path

from pdcore.errors import ConfigError

NUM_SPECIAL = 256  # the first ids, where special tokens and single bytes usually stand


def vocabulary_of(model_dir: Path) -> range:
    """Ids that the model knows, without the first few. Raises ConfigError."""
    path = model_dir / "config.json"
    try:
        size = json.loads(path.read_text(encoding="utf-8"))["vocab_size"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: no vocab_size to be read: {error!r}") from None
    return range(min(NUM_SPECIAL, size // 2), size)
