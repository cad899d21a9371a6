"""How plots look: one colour, marker and line per arm in every figure, distinct without colour too.

The colours are Okabe and Ito's, which people with any of the common colour deficiencies can tell
apart. The default mode is black and heavy, yardsticks are grey and broken, the rest is coloured.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Literal, TypeAlias

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.style import context
from matplotlib.ticker import LogLocator, NullFormatter

GREY = "#6e6e6e"
FEW = 50  # an axis is short when its values span less
LINEAR_BELOW_MS = 1.0
TITLE_SIZE = 8.5
LETTERS_PER_INCH = 14  # of a title, at least

LineStyle: TypeAlias = Literal["-", "--", "-.", ":"]


@dataclass(frozen=True, slots=True)
class ArmStyle:
    colour: str
    marker: str
    line: LineStyle = "-"
    width: float = 1.4


ARM_STYLES: dict[str, ArmStyle] = {
    "sequential_layer": ArmStyle("#CC79A7", "v"),
    "sequential": ArmStyle("#D55E00", "o"),
    "bulk": ArmStyle("#E69F00", "s"),
    "windowed": ArmStyle("#56B4E9", "^"),
    "coalesced": ArmStyle("#009E73", "D"),
    "pipelined": ArmStyle("#0072B2", "P"),
    "striped": ArmStyle("#882255", "X"),
    "auto": ArmStyle("#000000", "o", width=2.4),
    "colocated": ArmStyle("#8c8c8c", "d", ":"),
    "raw_tcp": ArmStyle("#6e6e6e", "x", "--"),
    "raw_grpc": ArmStyle("#9a9a9a", "+", ":"),
    "nixl": ArmStyle("#7a6a00", "*", "-."),
}
OTHER_ARMS = tuple(ARM_STYLES[name] for name in ("pipelined", "sequential", "coalesced", "bulk"))

SHARE_COLOURS = {
    "producer_s": ("waiting for pages to be computed", "#CCCCCC"),
    "prepare_s": ("preparing (gather, checksum)", "#E69F00"),
    "transport_s": ("waiting for the transport", "#56B4E9"),
    "window_s": ("waiting for acknowledgements", "#0072B2"),
}

VERDICT_COLOURS = {  # a light colour each, its letter for a copy in black and white
    "compute_bound": ("compute", "#D9D9D9", "C"),
    "software_bound": ("software", "#F3D08A", "S"),
    "rtt_bound": ("round trips", "#E8A27F", "R"),
    "bandwidth_bound": ("bandwidth", "#8CC5E8", "B"),
}

STYLE_SHEET = Path(__file__).with_name("paper.mplstyle")


@contextmanager
def styled() -> Iterator[None]:
    with context(STYLE_SHEET):
        yield


def arm_style(name: str, place: int = 0) -> ArmStyle:
    """Of a known arm, else of the ``place``-th arm with a name of its own."""
    return ARM_STYLES.get(name) or OTHER_ARMS[place % len(OTHER_ARMS)]


def in_order(arms: Iterable[str]) -> list[str]:
    """The ladder from below, then yardsticks, then arms with names of their own."""
    known = list(ARM_STYLES)
    return sorted(dict.fromkeys(arms), key=lambda a: (known.index(a) if a in known else 99, a))


def arm_lines(arms: Sequence[str]) -> list[Artist]:
    """Legend entries. Room is kept for long names."""
    return [_arm_line(name, arm_style(name, place)) for place, name in enumerate(arms)]


def _arm_line(name: str, style: ArmStyle) -> Line2D:
    return Line2D(
        [],
        [],
        label=name,
        color=style.colour,
        marker=style.marker,
        linestyle=style.line,
        linewidth=style.width,
        markersize=5,
    )


def legend_beside(figure: Figure, entries: Sequence[Artist], title: str) -> None:
    """With the figure's title above the panels, left of the legend."""
    figure.legend(handles=list(entries), loc="outside right upper")
    words = fill(title, int(LETTERS_PER_INCH * (figure.get_figwidth() - 1.5)))
    figure.suptitle(words, x=0.01, ha="left", fontsize=TITLE_SIZE)


def legend_above(figure: Figure, entries: Sequence[Artist], title: str) -> None:
    """In as many columns as the figure is wide, below the figure's title."""
    widest = max(len(str(entry.get_label())) for entry in entries)
    fitting = int(figure.get_figwidth() / (0.5 + 0.075 * widest))
    columns = min(len(entries), max(1, fitting))
    figure.legend(
        handles=list(entries),
        loc="outside upper left",
        ncols=columns,
        title=fill(title, int(LETTERS_PER_INCH * figure.get_figwidth())),
        title_fontsize=TITLE_SIZE,
        alignment="left",
    )


def rtt_axis(axes: Axes, rtts_s: Iterable[float]) -> None:
    """Milliseconds, a tick at each measured RTT. Logarithmic, but for what lies near 0."""
    ticks = sorted({1e3 * rtt_s for rtt_s in rtts_s})
    linear = ticks[0] < LINEAR_BELOW_MS
    if linear:
        axes.set_xscale("symlog", linthresh=LINEAR_BELOW_MS, linscale=0.6)
    else:
        axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
    axes.set_xticks([], minor=True)
    axes.set_xlim(-0.25 if ticks[0] == 0 else ticks[0] / 1.3, ticks[-1] * 1.3 or 1)
    axes.set_xlabel(
        "round-trip time (ms)" + (f", linear below {LINEAR_BELOW_MS:g}" if linear else "")
    )


def plain_ticks(axis: Axis, values: Iterable[float]) -> None:
    """Of a logarithmic axis: at each power of ten, of a short one also at 2 and 5 times those."""
    positive = [value for value in values if value > 0]
    few = not positive or max(positive) < FEW * min(positive)
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def as_png(figure: Figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
