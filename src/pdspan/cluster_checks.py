"""What a process of any role checks in its cluster file that ``pdcore`` cannot know."""

from kvtransfer.limits import MODES
from pdcore.errors import ConfigError
from pdcore.settings import ClusterSettings


def check_mode(settings: ClusterSettings) -> None:
    """Raises ConfigError: a wrong mode would otherwise fail every request, not the start."""
    mode = settings.transfer.mode
    if mode not in MODES:
        raise ConfigError(f"transfer.mode is {mode!r}; one of {', '.join(MODES)}")
