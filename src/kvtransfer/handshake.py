"""What two nodes compare before any page moves: version, layout, epoch, codec, extent.

Each refusal names what differs, with both values. These checks change nothing: they are run on
every ``Attach`` and on every opening of a stream, in every state of a transfer.
"""

from kvtransfer.codecs import CODECS
from kvtransfer.messages import AttachRequest, Extent, Identity, Opening, Standing
from pdcore.cluster import Epoch
from pdcore.errors import EpochMismatch, LayoutMismatch, ProtocolViolation
from pdcore.kv_layout import KvLayout
from pdcore.settings import MAX_STRIPES

PROTOCOL = 2

MAX_NAME_CHARS = 256  # names and ids are kept, so none may be as large as a message


def check_attach(request: AttachRequest, layout: KvLayout) -> None:
    """Raises LayoutMismatch or ProtocolViolation."""
    _check_names(request.sender, request.layout)
    _check_version(request.protocol, request.layout, layout, request.sender.node)


def check_standing(standing: Standing, layout: KvLayout) -> None:
    """Raises LayoutMismatch or ProtocolViolation."""
    _check_names(standing.receiver, standing.layout)
    _check_version(standing.protocol, standing.layout, layout, standing.receiver.node)


def check_opening(opening: Opening, receiver: Identity, layout: KvLayout) -> None:
    """Raises LayoutMismatch, EpochMismatch or ProtocolViolation."""
    _check_names(opening.sender, opening.layout)
    check_name("the codec", opening.codec)
    _check_version(opening.protocol, opening.layout, layout, opening.sender.node)
    check_epoch(meant=opening.receiver_epoch, actual=receiver)
    if opening.codec not in CODECS:
        raise LayoutMismatch(
            f"codec: {opening.codec!r} from {opening.sender.node}, {receiver.node} has"
            f" {', '.join(CODECS)}"
        )
    _check_extent(opening.extent, opening.stripe, layout)


def check_name(what: str, name: str) -> None:
    """Raises ProtocolViolation for a name or an id that is too long."""
    if len(name) > MAX_NAME_CHARS:
        raise ProtocolViolation(
            f"{what} is {len(name)} characters long, at most {MAX_NAME_CHARS} are allowed"
        )


def check_epoch(*, meant: Epoch, actual: Identity) -> None:
    """Raises EpochMismatch when ``meant`` is not the life that ``actual`` is in."""
    if meant != actual.epoch:
        raise EpochMismatch(
            f"{actual.node} has epoch {actual.epoch:x}, {meant:x} was meant: it restarted"
        )


def _check_names(node: Identity, layout: KvLayout) -> None:
    """Errors and logs repeat them."""
    check_name("the sender's name", node.node)
    check_name("the layout's model", layout.model)
    check_name("the layout's dtype", layout.dtype)


def _check_version(protocol: int, theirs: KvLayout, ours: KvLayout, peer: str) -> None:
    if protocol != PROTOCOL:
        raise LayoutMismatch(f"protocol: {PROTOCOL} here, {protocol} at {peer}")
    difference = ours.difference(theirs)
    if difference is not None:
        raise LayoutMismatch(f"layout of {peer} differs: {difference}")


def _check_extent(extent: Extent, stripe: int, layout: KvLayout) -> None:
    if extent.num_tokens < 1 or extent.num_pages != layout.num_pages(extent.num_tokens):
        raise ProtocolViolation(
            f"{extent.num_tokens} tokens in {extent.num_pages} pages of {layout.page_tokens}"
        )
    if not stripe < extent.num_stripes <= MAX_STRIPES:
        raise ProtocolViolation(
            f"stripe {stripe} of {extent.num_stripes}; at most {MAX_STRIPES} are allowed"
        )
