"""What is to be measured: trials, each a link's setting, a page size, a payload, and its arms.

Impossible numbers are refused here, before anything is started.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from kvtransfer.limits import MAX_PAYLOAD_BYTES
from pdcore.errors import ConfigError
from pdlab.link import LinkProfile, TcpSettings
from pdlab.quantities import format_bytes
from pdlab.transfer.pool import layout_of

LARGEST_PAYLOAD_BYTES = 4 * 2**30
DEFAULT_LIMIT_S = 5.0
LARGE_BUFFERS = TcpSettings()


@dataclass(frozen=True, slots=True)
class Trial:
    """Every arm of it moves the same pages, repetition by repetition, in random order.

    ``limit_s``: what one repetition may take; an arm that is too slow moves fewer pages.
    ``arms`` are keys of ``pdlab.transfer.arms.ARMS``, or NIXL.
    """

    profile: LinkProfile
    page_bytes: int
    payload_bytes: int
    arms: tuple[str, ...]
    kind: str = "tun"  # of link
    tcp: TcpSettings = LARGE_BUFFERS
    repetitions: int = 5
    limit_s: float = DEFAULT_LIMIT_S
    overrides: tuple[str, ...] = ()
    warm_moves: int = 4  # of two BDP each, before the first repetition
    fresh_ends: bool = False  # processes of its own, so that its memory is nobody else's

    def __post_init__(self) -> None:
        layout_of(self.page_bytes)
        page, payload = format_bytes(self.page_bytes), format_bytes(self.payload_bytes)
        if self.page_bytes > MAX_PAYLOAD_BYTES:
            limit = format_bytes(MAX_PAYLOAD_BYTES)
            raise ConfigError(f"a page of {page}: a message holds at most {limit}")
        if self.page_bytes > self.payload_bytes:
            raise ConfigError(f"a page of {page} does not fit in a payload of {payload}")
        if self.payload_bytes > LARGEST_PAYLOAD_BYTES:
            limit = format_bytes(LARGEST_PAYLOAD_BYTES)
            raise ConfigError(f"a payload of {payload}: a pool holds at most {limit}")
        if self.repetitions < 1:
            raise ConfigError(f"{self.repetitions} repetitions: at least 1")
        if self.limit_s <= 0:
            raise ConfigError(f"a limit of {self.limit_s:g} s: more than 0")

    @property
    def num_pages(self) -> int:
        """Whole pages of the payload."""
        return self.payload_bytes // self.page_bytes

    def __str__(self) -> str:
        return f"{format_bytes(self.payload_bytes)} in {format_bytes(self.page_bytes)} pages"


def grid(
    profiles: Sequence[LinkProfile],
    pages: Sequence[int],
    payloads: Sequence[int],
    template: Trial,
) -> Iterator[Trial]:
    """Every combination, link by link. A page larger than one of the payloads is an error."""
    for profile, page_bytes, payload_bytes in product(profiles, pages, payloads):
        yield replace(template, profile=profile, page_bytes=page_bytes, payload_bytes=payload_bytes)


def pool_bytes(trials: Iterable[Trial]) -> int:
    """A pool that holds any of the payloads; some more, so that a page may lie anywhere."""
    return max(trial.payload_bytes for trial in trials) * 9 // 8
