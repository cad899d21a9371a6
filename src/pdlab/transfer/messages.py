"""What the runner and the two ends say to each other: JSON lines, a request and its answer.

The lines go over the ends' standard input and output, never over the link. Several requests may be
open at once; ``id`` joins an answer to its request. Standard library only, besides ``pdcore``: the
ends in NIXL's own environment speak it too.
"""

import json
from dataclasses import asdict, dataclass

from pdcore.errors import NotOurs
from pdcore.typed_table import read_table


@dataclass(frozen=True, slots=True)
class Hello:
    pass


@dataclass(frozen=True, slots=True)
class Started:
    """The pool is there, and touched."""

    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Number:
    """Number the pool's bytes as pages of this size."""

    page_bytes: int
    num_digests: int = 0  # of so many pages


@dataclass(frozen=True, slots=True)
class Numbered:
    num_pages: int
    digests: str  # one for each logical page, joined


@dataclass(frozen=True, slots=True)
class Expected:
    """To the receiver: the digests of the pages that will come."""

    digests: str


@dataclass(frozen=True, slots=True)
class Peer:
    """How the other end of an arm is reached. ``blob`` is NIXL's description of an agent."""

    address: str = ""
    epoch: int = 0
    blob: str = ""


@dataclass(frozen=True, slots=True)
class OpenArm:
    """To the receiver with its own ``host``, then to the sender with the receiver's ``peer``."""

    arm: str
    host: str
    overrides: tuple[str, ...] = ()  # of settings, as ``--set`` has them
    peer: Peer = Peer()


@dataclass(frozen=True, slots=True)
class ArmOpened:
    peer: Peer = Peer()


@dataclass(frozen=True, slots=True)
class CloseArm:
    arm: str


@dataclass(frozen=True, slots=True)
class Move:
    """Logical pages [first_page, first_page + num_pages): to the receiver, which then expects
    them, and to the sender, which sends them. ``warms``: whatever is fastest, not what is measured.
    """

    arm: str
    name: str  # of the transfer; new each time
    first_page: int
    num_pages: int
    warms: bool = False
    watch: bool = False  # note the window as time goes by


@dataclass(frozen=True, slots=True)
class Expecting:
    pass


@dataclass(frozen=True, slots=True)
class Watched:
    """A moment of a transfer: what the sender wants in flight, and what is."""

    at_s: float  # since it began
    target_bytes: int  # 0: the path is not known
    in_flight_bytes: int


@dataclass(frozen=True, slots=True)
class Told:
    """What a KV transfer's own report says; None of an arm that has none."""

    mode: str
    frames: int
    stripes: int
    attempts: int
    frame_bytes: int
    window_bytes: int  # 0: one frame at a time
    max_in_flight_bytes: int
    duration_s: float
    producer_s: float
    prepare_s: float
    window_s: float
    transport_s: float
    verdict: str
    verdict_text: str
    frame_cost_s: float
    warmup_bytes: int
    watched: tuple[Watched, ...] = ()


@dataclass(frozen=True, slots=True)
class Sent:
    duration_s: float  # first byte to the acknowledgement of the last
    cpu_s: float
    peak_rss_bytes: int
    told: Told | None = None


@dataclass(frozen=True, slots=True)
class Collect:
    """To the receiver, after the sender has sent: is everything there?"""

    name: str


@dataclass(frozen=True, slots=True)
class Collected:
    cpu_s: float
    peak_rss_bytes: int
    num_wrong_pages: int
    digest: str  # of all pages


@dataclass(frozen=True, slots=True)
class Failed:
    """Instead of an answer: what went wrong, and which error it was."""

    error: str
    message: str


Message = (
    Hello
    | Started
    | Number
    | Numbered
    | Expected
    | OpenArm
    | ArmOpened
    | CloseArm
    | Move
    | Expecting
    | Sent
    | Collect
    | Collected
    | Failed
)

_KINDS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        Hello,
        Started,
        Number,
        Numbered,
        Expected,
        OpenArm,
        ArmOpened,
        CloseArm,
        Move,
        Expecting,
        Sent,
        Collect,
        Collected,
        Failed,
    )
}


LINE_BYTES = 64 * 2**20  # digests of a pool of small pages stand on one line


def to_line(request_id: int, message: Message) -> str:
    fields = asdict(message)
    return json.dumps({"id": request_id, "kind": type(message).__name__, "fields": fields}) + "\n"


def from_line(line: str) -> tuple[int, Message]:
    """(the request's id, the message)."""
    try:
        table = json.loads(line)
        kind = _KINDS[table["kind"]]
        return int(table["id"]), read_table(kind, table["fields"], table["kind"])
    except (ValueError, KeyError, TypeError):
        raise NotOurs(f"not a message of the laboratory: {line[:200]!r}") from None
