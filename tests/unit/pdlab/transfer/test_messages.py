"""The lines between runner and ends: values come back as they went, anything else is named."""

import pytest

from pdcore.errors import NotOurs
from pdlab.transfer.messages import (
    ArmOpened,
    Failed,
    Message,
    Move,
    OpenArm,
    Peer,
    Sent,
    Told,
    Watched,
    from_line,
    to_line,
)

TOLD = Told(
    mode="auto",
    frames=3,
    stripes=2,
    attempts=1,
    frame_bytes=2**21,
    window_bytes=2**24,
    max_in_flight_bytes=2**23,
    duration_s=1.5,
    producer_s=0.0,
    prepare_s=0.25,
    window_s=1.0,
    transport_s=0.25,
    verdict="rtt_bound",
    verdict_text="rtt_bound: so it is",
    frame_cost_s=0.001,
    warmup_bytes=0,
    watched=(Watched(0.5, 10, 20),),
)


@pytest.mark.parametrize(
    "message",
    [
        OpenArm("auto", "127.0.0.1", ("transfer.stripes=2",), Peer("127.0.0.1:1", 2**63, "ab")),
        ArmOpened(),
        Move("raw_tcp_4", "raw_tcp_4-7", 3, 5, warms=True),
        Sent(0.5, 0.25, 10**9, TOLD),
        Sent(0.5, 0.25, 10**9),
        Failed("PeerUnavailable", 'it said "no"\nand left'),
    ],
)
def test_a_message_survives_its_line(message: Message) -> None:
    line = to_line(7, message)
    assert line.endswith("\n") and line.count("\n") == 1
    assert from_line(line) == (7, message)


@pytest.mark.parametrize(
    "line", ["hello\n", "[]\n", '{"id": 1, "kind": "Nothing", "fields": {}}\n']
)
def test_other_lines_are_named(line: str) -> None:
    with pytest.raises(NotOurs, match="not a message of the laboratory"):
        from_line(line)
