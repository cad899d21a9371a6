"""A model from the Hugging Face hub, through ``huggingface_hub`` and its own cache and settings."""

import re
from pathlib import Path

from pdcore.errors import ConfigError

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
FILES = ("*.json", "*.safetensors", "*.jinja")


def fetch_hub_model(hub_id: str) -> Path:
    """The snapshot's directory. Without a network, one that was downloaded before is still found.

    Raises ConfigError when the package is missing, the hub cannot be reached, or it has no such
    model (or one that asks for a token).
    """
    try:
        import huggingface_hub  # slow to import
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        raise ConfigError(
            f"model {hub_id!r} is a hub id, and huggingface_hub is not installed "
            "(pip install huggingface_hub), or name a local directory"
        ) from None
    try:
        return Path(huggingface_hub.snapshot_download(hub_id, allow_patterns=list(FILES)))
    except (OSError, HFValidationError) as error:  # the hub's errors and httpx's are OSErrors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"could not get {hub_id!r} from the hub: {reason}") from None
