"""When a window counts as adapted: five new round trips after the old flight has drained."""

from dataclasses import replace

from pdlab.link import LinkProfile
from pdlab.transfer.cases import adapted_bytes
from pdlab.transfer.messages import Told, Watched

SLOWER = LinkProfile(0.05, 1e8)
TOLD = Told(
    mode="auto", frames=1, stripes=1, attempts=1, frame_bytes=1, window_bytes=1,
    max_in_flight_bytes=1, duration_s=1.0, producer_s=0.0, prepare_s=0.0, window_s=0.0,
    transport_s=1.0, verdict="", verdict_text="", frame_cost_s=0.0, warmup_bytes=0,
)  # fmt: skip


def told(*watched: Watched) -> Told:
    return replace(TOLD, watched=watched)


def test_the_old_flight_drains_at_the_new_rate() -> None:
    """12.06 MB in flight at 12.06 MB/s drain in a second; then six round trips of 50 ms."""
    before = Watched(0.69, 10, 12_062_500)
    late = [Watched(1.9, 7, 0), Watched(1.99, 8, 0), Watched(2.01, 9, 0), Watched(2.1, 1, 0)]
    assert adapted_bytes(told(before, *late), SLOWER, 0.7) == 9


def test_a_transfer_that_was_over_before_has_no_answer() -> None:
    assert adapted_bytes(told(Watched(0.69, 10, 12_062_500)), SLOWER, 0.7) is None
