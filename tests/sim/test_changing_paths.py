"""What ``auto`` keeps in flight follows the path, and is shared: in virtual time, over a line.

The bars: after a change, the target is within a quarter of twice what the path then holds, five
round trips after what was in flight has drained; a small transfer that starts behind a large one
takes four round trips and its own time.
"""

import pytest

from changing_path import LAYOUT, ChangingPath, Line, Transfer

GBIT = 125e6
MIB_PAGES = 2  # pages in a MiB
CHANGE_S = 6.0

BEFORE = Line(GBIT, 0.05)
CHANGES = {
    "rate / 10": (Line(GBIT / 10, 0.05, CHANGE_S),),
    "rate x 4, from slow": (Line(GBIT, 0.05, CHANGE_S),),
    "RTT x 4": (Line(GBIT, 0.2, CHANGE_S),),
    "rate / 2": (Line(GBIT / 2, 0.05, CHANGE_S),),
    "cut for 2 s": (Line(0, 0.05, CHANGE_S), Line(GBIT, 0.05, CHANGE_S + 2.0)),
}
pings_queue = pytest.mark.parametrize("pings_queue", [True, False], ids=["behind", "past"])


def run_until_drained(path: ChangingPath, transfer: Transfer) -> None:
    """What is in flight now has been acknowledged."""
    goal = transfer.delivered_bytes + path.path.in_flight_bytes
    while transfer.delivered_bytes < goal:
        assert path.step()


def known_path(line: Line = BEFORE, *, pings_queue: bool = True) -> ChangingPath:
    """A transfer has found out what there is to know."""
    path = ChangingPath(line, pings_queue=pings_queue)
    path.add("first", (0.3, 256 * MIB_PAGES))
    path.run()
    assert path.path.is_settled
    return path


def held_bytes(line: Line) -> float:
    return line.rate * line.rtt_s


@pings_queue
@pytest.mark.parametrize("change", ["rate / 10", "RTT x 4", "cut for 2 s", "rate x 4, from slow"])
def test_the_target_follows_a_change(change: str, pings_queue: bool) -> None:
    before = Line(GBIT / 4, 0.05) if "from slow" in change else BEFORE
    path = ChangingPath(before, *CHANGES[change], pings_queue=pings_queue)
    transfer = path.add("large", (0.3, 768 * MIB_PAGES))
    path.run(CHANGE_S)
    assert path.path.target_bytes == pytest.approx(2 * held_bytes(before), rel=0.05)
    run_until_drained(path, transfer)
    after = CHANGES[change][-1]
    path.run(path.now + 5 * after.rtt_s)
    assert path.path.target_bytes == pytest.approx(2 * held_bytes(after), rel=0.25)
    path.run(path.now + 20 * after.rtt_s)
    assert path.path.target_bytes == pytest.approx(2 * held_bytes(after), rel=0.05)
    path.run()
    assert transfer.committed_s is not None


@pings_queue
@pytest.mark.parametrize(
    "after",
    [CHANGES["rate / 2"][0], *(Line(GBIT, rtt_s, CHANGE_S) for rtt_s in (0.08, 0.11, 0.13, 0.3))],
    ids=lambda line: f"{line.rate / GBIT:g} Gbit/s, {line.rtt_s * 1e3:g} ms",
)
def test_the_line_stays_full(after: Line, pings_queue: bool) -> None:
    """However large the change: little time is lost, also where a queue could explain it."""
    path = ChangingPath(BEFORE, after, pings_queue=pings_queue)
    transfer = path.add("large", (0.3, 1152 * MIB_PAGES))
    path.run(CHANGE_S)
    left_bytes = transfer.queue.page_bytes - transfer.delivered_bytes
    path.run()
    assert transfer.committed_s is not None
    assert transfer.committed_s - CHANGE_S <= 1.1 * left_bytes / after.rate + 10 * after.rtt_s


def test_pages_in_a_deep_queue_do_not_look_like_a_longer_path() -> None:
    path = ChangingPath(BEFORE)
    transfer = path.add("large", (0.3, 1152 * MIB_PAGES))
    path.run(3.0)
    while transfer.committed_s is None:
        assert path.step()
        assert path.path.rtt_s == pytest.approx(0.05, rel=0.3)
        assert path.path.in_flight_bytes <= 2.6 * held_bytes(BEFORE)
    line_s = transfer.queue.page_bytes / GBIT
    assert transfer.duration_s <= 1.02 * (line_s + 0.05)


@pings_queue
@pytest.mark.parametrize("rtt_s", [0.05, 0.1, 0.2])
def test_a_small_transfer_does_not_wait_for_a_large_one(rtt_s: float, pings_queue: bool) -> None:
    path = known_path(Line(GBIT, rtt_s), pings_queue=pings_queue)
    path.add("large", (path.now + 1.0, 256 * MIB_PAGES))
    small = path.add("small", (path.now + 2.0, 1 * MIB_PAGES))
    path.run()
    assert small.duration_s <= 4 * rtt_s + small.queue.page_bytes / GBIT


def test_transfers_of_a_pair_share_it() -> None:
    """Three that start together end together, but for the window that the first of them fills."""
    path = known_path()
    three = [path.add(name, (path.now + 1.0, 64 * MIB_PAGES)) for name in "abc"]
    path.run()
    line_s = 3 * three[0].queue.page_bytes / GBIT + 0.05
    head_start_s = (2 * path.window.window_bytes() + 2 * 2**20) / GBIT  # and a frame
    for transfer in three:
        assert line_s - head_start_s <= transfer.duration_s <= 1.02 * line_s


def test_one_whose_producer_is_slow_leaves_the_line_to_another() -> None:
    path = ChangingPath(BEFORE)
    slow = path.add("slow", *((0.3 + 0.1 * number, 2 * (number + 1)) for number in range(20)))
    large = path.add("large", (0.3, 192 * MIB_PAGES))
    path.run()
    total_bytes = large.queue.page_bytes + slow.queue.page_bytes
    assert large.duration_s <= 1.03 * (total_bytes / GBIT + 0.05)
    assert slow.duration_s <= 2.0 + 0.3


def test_a_slow_producer_does_not_make_the_path_look_slow() -> None:
    path = known_path()
    target_bytes = path.path.target_bytes
    start_s = path.now + 1.0
    path.add("slow", *((start_s + 0.1 * number, 2 * (number + 1)) for number in range(100)))
    path.run()
    assert path.path.target_bytes == target_bytes


@pytest.mark.parametrize("mode", ["sequential", "bulk", "pipelined"])
def test_a_mode_with_a_fixed_window_does_not_make_the_path_look_slow(mode: str) -> None:
    path = known_path()
    before_bytes = path.path.target_bytes
    path.add("fixed", (path.now + 1.0, 64 * MIB_PAGES), mode=mode)
    path.run()
    after_bytes = path.path.target_bytes
    assert before_bytes is not None and after_bytes is not None
    assert before_bytes <= after_bytes <= 1.1 * before_bytes


def test_many_transfers_that_fit_in_the_first_window_tell_the_rate_too() -> None:
    path = ChangingPath(BEFORE)
    for number in range(4):
        path.add(f"prompt {number}", (path.now + 0.5, 48 * MIB_PAGES))
        path.run()
    assert path.path.is_settled
    assert path.path.target_bytes == pytest.approx(2 * held_bytes(BEFORE), rel=0.05)


def test_the_size_of_a_page_is_that_of_the_simulation() -> None:
    assert LAYOUT.page_bytes * MIB_PAGES == 2**20
