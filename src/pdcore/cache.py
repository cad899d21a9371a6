"""Where what can be made again is kept between runs: models, compiled programs."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """``$PDSPAN_CACHE``, else ``$XDG_CACHE_HOME/pdspan``, else ``~/.cache/pdspan``."""
    if own := os.environ.get("PDSPAN_CACHE"):
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "pdspan"
