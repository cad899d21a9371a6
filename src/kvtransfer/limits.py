"""How a transfer sends, as numbers; the named modes are rows.

One code path sends. A mode says when the first frame leaves, what a frame holds, how much may be
unacknowledged, and over how many connections; the settings fill in the byte numbers. So two modes
differ in policy, never in implementation.
"""

from dataclasses import dataclass
from enum import StrEnum

from pdcore.errors import ConfigError, InvalidRequest
from pdcore.kv_layout import KvLayout
from pdcore.settings import TransferSettings

MAX_AUTO_STRIPES = 8
# A frame of ``auto`` may hold as much as so many of the others' where the path is fast: then what
# each frame costs the two programs counts for more than how long it keeps others waiting.
MOST_FRAMES = 2
# Half of the transport's message limit (pdcore.rpc): room for the header and to spare.
MAX_PAYLOAD_BYTES = 16 * 2**20


class Starts(StrEnum):
    AFTER_PREFILL = "after_prefill"  # when every page of the prompt is final
    WHILE_PREFILL_RUNS = "while_prefill_runs"  # as soon as a page is final


class FrameUnit(StrEnum):
    LAYER = "one layer of one page"
    PAGE = "one page"
    FILL = "as many pages as fit"


@dataclass(frozen=True, slots=True)
class Mode:
    """A row of the ladder."""

    starts: Starts
    windowed: bool  # False: one frame at a time, the next one after its acknowledgement
    frame: FrameUnit
    striped: bool = False
    adaptive: bool = False  # window, frames and connections follow the path


_EARLY, _LATE = Starts.WHILE_PREFILL_RUNS, Starts.AFTER_PREFILL

MODES: dict[str, Mode] = {
    "sequential_layer": Mode(_LATE, windowed=False, frame=FrameUnit.LAYER),
    "sequential": Mode(_LATE, windowed=False, frame=FrameUnit.PAGE),
    "bulk": Mode(_LATE, windowed=False, frame=FrameUnit.FILL),
    "windowed": Mode(_LATE, windowed=True, frame=FrameUnit.PAGE),
    "coalesced": Mode(_LATE, windowed=True, frame=FrameUnit.FILL),
    "pipelined": Mode(_EARLY, windowed=True, frame=FrameUnit.FILL),
    "striped": Mode(_EARLY, windowed=True, frame=FrameUnit.FILL, striped=True),
    "auto": Mode(_EARLY, windowed=True, frame=FrameUnit.FILL, adaptive=True),
}


@dataclass(frozen=True, slots=True)
class FrameShape:
    """What a frame holds at most; several pages only when it holds all their layers."""

    pages: int
    layers: int


@dataclass(frozen=True, slots=True)
class SendLimits:
    """A row filled in for one layout. ``window_bytes`` None: one frame at a time.

    ``small_frame_bytes``: a frame below it is held back while earlier bytes are unacknowledged and
    more pages are to come (0: never). ``is_adaptive``: the window starts at ``window_bytes``;
    ``frame`` and ``num_stripes`` are the most that the path may ask for.
    """

    mode: str
    starts: Starts
    window_bytes: int | None
    frame: FrameShape
    small_frame_bytes: int
    num_stripes: int
    is_adaptive: bool = False

    def stripes_for(self, num_pages: int, layout: KvLayout) -> int:
        """How many stripes a transfer uses: no more than it has frames."""
        frames_of_a_page = -(-layout.num_layers // self.frame.layers)
        num_frames = -(-num_pages // self.frame.pages) * frames_of_a_page
        return min(self.num_stripes, num_frames)


def limits_for(mode: str, settings: TransferSettings, layout: KvLayout) -> SendLimits:
    """The row named ``mode``, filled in.

    Raises InvalidRequest for an unknown mode, ConfigError when one layer of a page is larger than
    a message may be.
    """
    row = MODES.get(mode)
    if row is None:
        raise InvalidRequest(
            f"unknown transfer mode {mode!r}; known: {', '.join(MODES)}",
            param="kv_transfer_params.mode",
        )
    return SendLimits(
        mode=mode,
        starts=row.starts,
        window_bytes=settings.window_bytes if row.windowed else None,
        frame=_frame_shape(row.frame, _frame_bytes(row, settings), layout),
        small_frame_bytes=settings.frame_bytes // 2 if row.frame is FrameUnit.FILL else 0,
        num_stripes=_num_stripes(row, settings),
        is_adaptive=row.adaptive,
    )


def _frame_bytes(row: Mode, settings: TransferSettings) -> int:
    return (MOST_FRAMES if row.adaptive else 1) * settings.frame_bytes


def _num_stripes(row: Mode, settings: TransferSettings) -> int:
    if row.adaptive:
        return MAX_AUTO_STRIPES
    return settings.stripes if row.striped else 1


def filled(frame_bytes: int, layout: KvLayout) -> FrameShape:
    """As many pages as fit. A page that is too large is split by layers."""
    if layout.page_bytes <= frame_bytes:
        return FrameShape(frame_bytes // layout.page_bytes, layout.num_layers)
    return FrameShape(1, max(1, frame_bytes // layout.layer_bytes))


def _frame_shape(unit: FrameUnit, frame_bytes: int, layout: KvLayout) -> FrameShape:
    if layout.layer_bytes > MAX_PAYLOAD_BYTES:
        raise ConfigError(
            f"one layer of a page is {layout.layer_bytes} bytes, a message holds at most"
            f" {MAX_PAYLOAD_BYTES}: lower engine.page_tokens (now {layout.page_tokens})"
        )
    match unit:
        case FrameUnit.LAYER:
            return FrameShape(1, 1)
        case FrameUnit.PAGE:
            return FrameShape(1, min(layout.num_layers, MAX_PAYLOAD_BYTES // layout.layer_bytes))
        case FrameUnit.FILL:
            return filled(min(frame_bytes, MAX_PAYLOAD_BYTES), layout)
