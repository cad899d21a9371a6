"""What differs is named, with both values; equal nodes pass."""

from dataclasses import replace

import pytest

from kvtransfer.handshake import PROTOCOL, check_attach, check_opening, check_standing
from kvtransfer.messages import AttachRequest, Extent, Opening, Standing
from page_memory import RECEIVER, SENDER, TINY
from pdcore.cluster import Epoch, NodeName
from pdcore.errors import EpochMismatch, LayoutMismatch, PdspanError, ProtocolViolation

OPENING = Opening(SENDER, RECEIVER.epoch, PROTOCOL, TINY, "raw", Extent(10, 3, 4), stripe=3)


def test_equals_pass() -> None:
    check_opening(OPENING, RECEIVER, TINY)
    check_attach(AttachRequest(SENDER, TINY, PROTOCOL), TINY)
    check_standing(Standing(RECEIVER, TINY, PROTOCOL, 1), TINY)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"protocol": 1}, LayoutMismatch, "protocol: 2 here, 1 at prefill-0"),
        ({"layout": replace(TINY, num_layers=2)}, LayoutMismatch, "num_layers: 3 here, 2 there"),
        ({"layout": replace(TINY, model="x")}, LayoutMismatch, "model: tiny here, x there"),
        ({"codec": "fp8"}, LayoutMismatch, "codec: 'fp8' from prefill-0, decode-0 has raw"),
        ({"receiver_epoch": Epoch(255)}, EpochMismatch, "decode-0 has epoch 16, ff was meant"),
        ({"extent": Extent(10, 4, 4)}, ProtocolViolation, "10 tokens in 4 pages of 4"),
        ({"extent": Extent(0, 0, 4)}, ProtocolViolation, "0 tokens in 0 pages"),
        ({"codec": "x" * 257}, ProtocolViolation, "the codec is 257 characters long"),
        (
            {"layout": replace(TINY, model="x" * 257)},
            ProtocolViolation,
            "the layout's model is 257",
        ),
        (
            {"layout": replace(TINY, dtype="x" * 257)},
            ProtocolViolation,
            "the layout's dtype is 257",
        ),
        ({"stripe": 4}, ProtocolViolation, "stripe 4 of 4"),
        ({"extent": Extent(10, 3, 65)}, ProtocolViolation, "at most 64"),
    ],
)
def test_difference_is_named(
    change: dict[str, object], error: type[PdspanError], says: str
) -> None:
    with pytest.raises(error, match=says):
        check_opening(replace(OPENING, **change), RECEIVER, TINY)  # type: ignore[arg-type]


def test_attach_and_standing_compare_the_same_fields() -> None:
    other = replace(TINY, dtype="bfloat16")
    nameless = replace(SENDER, node=NodeName("x" * 257))
    with pytest.raises(ProtocolViolation, match="the sender's name is 257 characters long"):
        check_attach(AttachRequest(nameless, TINY, PROTOCOL), TINY)
    with pytest.raises(LayoutMismatch, match="of prefill-0 differs: dtype"):
        check_attach(AttachRequest(SENDER, other, PROTOCOL), TINY)
    with pytest.raises(LayoutMismatch, match="of decode-0 differs: dtype"):
        check_standing(Standing(RECEIVER, other, PROTOCOL, 1), TINY)
