"""What leaves when: windows, credit, small frames, round trips, several stripes."""

from dataclasses import replace

from kvtransfer.accounting import SendState
from kvtransfer.credit import Credit
from kvtransfer.frame_queue import FrameQueue
from kvtransfer.limits import limits_for
from kvtransfer.messages import Handoff, PageRun, Reply
from kvtransfer.path import PathEstimator
from kvtransfer.send_stripe import OutgoingFrame
from kvtransfer.stripe_policy import StripePolicy
from kvtransfer.window import WindowController, window_for
from page_memory import TINY
from pdcore.generation import TransferId
from pdcore.kv_layout import KvLayout
from pdcore.settings import TransferSettings

PAGE = TINY.page_bytes
HALF_MIB_PAGES = KvLayout("half a MiB a page", 32, 8, 128, 4, "bfloat16")
SETTINGS = TransferSettings(frame_bytes=4 * PAGE, window_bytes=4 * PAGE, stripes=2)


def make(
    mode: str,
    num_pages: int = 12,
    *,
    credit: Credit | None = None,
    path: PathEstimator | None = None,
    settings: TransferSettings = SETTINGS,
    window: WindowController | None = None,
    layout: KvLayout = TINY,
    name: str = "t",
) -> FrameQueue:
    limits = limits_for(mode, settings, layout)
    path = PathEstimator() if path is None else path
    queue = FrameQueue(
        TransferId(name),
        layout,
        num_pages=num_pages,
        limits=limits,
        window=window or window_for(limits, path),
        credit=Credit(100 * PAGE) if credit is None else credit,
        path=path,
        stripes=StripePolicy(path),
        settings=settings,
    )
    for stripe in range(queue.max_stripes):
        queue.open_stream(stripe, 0.0)
    return queue


def pull(queue: FrameQueue, stripe: int = 0, now: float = 1.0) -> list[OutgoingFrame | Handoff]:
    messages = []
    while (message := queue.next_message(stripe, now)) is not None:
        messages.append(message)
    return messages


def runs(messages: list[OutgoingFrame | Handoff]) -> list[PageRun]:
    return [message.run for message in messages if isinstance(message, OutgoingFrame)]


def ack(queue: FrameQueue, frames: int, nbytes: int, stripe: int = 0, now: float = 2.0) -> None:
    queue.on_reply(stripe, Reply(0, frames, nbytes, 100 * PAGE), now)


def test_after_prefill_waits_for_the_last_page() -> None:
    queue = make("coalesced")
    queue.pages_ready(11, 1.0)
    assert pull(queue) == []
    assert queue.accounting.state is SendState.PRODUCER
    queue.pages_ready(12, 1.0)
    assert runs(pull(queue)) == [PageRun(0, 4, 0, 3)]


def test_while_prefill_runs_pages_leave_at_once() -> None:
    queue = make("pipelined")
    queue.pages_ready(1, 1.0)
    assert runs(pull(queue)) == [PageRun(0, 1, 0, 3)]


def test_a_small_frame_waits_for_company_or_an_empty_pipe() -> None:
    queue = make("pipelined")
    queue.pages_ready(1, 1.0)
    pull(queue)
    queue.pages_ready(2, 1.0)
    assert pull(queue) == []
    assert queue.accounting.state is SendState.PRODUCER
    queue.pages_ready(3, 1.0)  # half a frame
    assert runs(pull(queue)) == [PageRun(1, 2, 0, 3)]
    queue.pages_ready(4, 1.0)
    assert pull(queue) == []
    ack(queue, 2, 3 * PAGE)
    assert runs(pull(queue)) == [PageRun(3, 1, 0, 3)]


def test_the_last_small_frame_does_not_wait() -> None:
    queue = make("pipelined", num_pages=2)
    queue.pages_ready(1, 1.0)
    pull(queue)
    queue.pages_ready(2, 1.0)
    assert runs(pull(queue)) == [PageRun(1, 1, 0, 3)]


def test_window_bounds_what_is_in_flight() -> None:
    queue = make("windowed")
    queue.pages_ready(12, 1.0)
    assert len(pull(queue)) == 4
    assert queue.in_flight_bytes == 4 * PAGE
    assert queue.accounting.state is SendState.WINDOW
    ack(queue, 1, PAGE)
    assert len(pull(queue)) == 1


def test_a_frame_larger_than_the_window_goes_alone() -> None:
    queue = make("windowed", settings=replace(SETTINGS, window_bytes=1))
    queue.pages_ready(12, 1.0)
    assert len(pull(queue)) == 1
    ack(queue, 1, PAGE)
    assert len(pull(queue)) == 1


def test_the_handoff_is_last() -> None:
    queue = make("sequential", num_pages=2)
    queue.pages_ready(2, 1.0)
    queue.hand_off((5,), 0, 1.0)
    assert runs(pull(queue)) == [PageRun(0, 1, 0, 3)]
    ack(queue, 1, PAGE)
    last, handoff = pull(queue)
    assert isinstance(last, OutgoingFrame) and handoff == Handoff((5,), 0, 2 * PAGE)


def test_the_handoff_waits_for_frames_that_came_back() -> None:
    queue = make("striped", num_pages=8, settings=replace(SETTINGS, window_bytes=8 * PAGE))
    queue.pages_ready(8, 1.0)
    first, second = queue.next_message(0, 1.0), queue.next_message(1, 1.0)
    queue.hand_off((5,), 0, 1.0)
    queue.on_broken(1, 1.0)
    assert isinstance(first, OutgoingFrame) and isinstance(second, OutgoingFrame)
    resent, handoff = pull(queue, stripe=0)
    assert isinstance(resent, OutgoingFrame) and resent.run == second.run
    assert isinstance(handoff, Handoff)


def test_the_handoff_does_not_overtake_a_blocked_frame() -> None:
    queue = make("striped", num_pages=8, settings=replace(SETTINGS, window_bytes=8 * PAGE))
    queue.pages_ready(8, 1.0)
    queue.next_message(0, 1.0)
    queue.next_message(1, 1.0)
    queue.hand_off((5,), 0, 1.0)
    queue.on_broken(1, 1.0)
    queue.on_reply(0, Reply(0, 0, 0, credit_bytes=4 * PAGE), 1.0)  # the grant was lowered
    assert pull(queue, stripe=0) == []


def test_stripes_pull_from_one_queue() -> None:
    queue = make("striped", settings=replace(SETTINGS, window_bytes=100 * PAGE))
    queue.pages_ready(12, 1.0)
    taken = [queue.next_message(stripe, 1.0) for stripe in (1, 0, 1)]
    frames = [message for message in taken if isinstance(message, OutgoingFrame)]
    assert [frame.run.first_page for frame in frames] == [0, 4, 8]
    assert [frame.sequence for frame in frames] == [0, 0, 1]


def test_no_more_stripes_than_frames() -> None:
    assert make("striped", num_pages=4).num_stripes == 1
    assert make("striped", num_pages=5).num_stripes == 2


def test_round_trips_are_the_longest_chain_of_acknowledgements() -> None:
    """12 pages through a window of 4: frame 5 waits for 1, frame 9 for 5."""
    queue = make("windowed")
    queue.pages_ready(12, 1.0)
    frames = [message for message in pull(queue) if isinstance(message, OutgoingFrame)]
    for number in range(1, 9):
        ack(queue, number, number * PAGE)
        frames += [m for m in pull(queue) if isinstance(m, OutgoingFrame)]
    assert [frame.round_trip for frame in frames] == [1] * 4 + [2] * 4 + [3] * 4
    assert queue.round_trips == 3


def test_an_acknowledgement_before_the_sender_asks_again_is_a_round_trip() -> None:
    """The window, not the moment of asking, says what a frame waited for."""
    queue = make("sequential")
    queue.pages_ready(12, 1.0)
    for number in range(1, 4):
        queue.next_message(0, 1.0)
        ack(queue, number, number * PAGE)
    assert queue.round_trips == 3


def test_waiting_for_the_producer_is_no_round_trip() -> None:
    queue = make("pipelined")
    for number, ready in enumerate((4, 8, 12), start=1):
        queue.pages_ready(ready, 1.0)
        pull(queue)
        ack(queue, number, ready * PAGE)
    assert queue.round_trips == 1


def test_time_runs_from_when_the_mode_lets_the_first_page_leave() -> None:
    """What prefill took before is no part of a transfer that starts after it."""
    for mode, duration_s in (("coalesced", 2.0), ("pipelined", 5.0)):
        queue = make(mode)
        queue.pages_ready(4, 1.0)
        queue.pages_ready(12, 4.0)
        assert sum(queue.accounting.seconds(6.0).values()) == duration_s, mode


def test_what_a_broken_stripe_held_goes_first() -> None:
    queue = make("windowed")
    queue.pages_ready(12, 1.0)
    pull(queue)
    ack(queue, 1, PAGE)
    queue.on_broken(0, 2.0)
    assert queue.in_flight_bytes == 0
    assert queue.open_stream(0, 3.0) == 1
    again = [message for message in pull(queue) if isinstance(message, OutgoingFrame)]
    assert [frame.run.first_page for frame in again] == [1, 2, 3, 4]
    assert [frame.sequence for frame in again] == [0, 1, 2, 3]
    assert queue.wire_bytes == 8 * PAGE
    assert queue.num_attempts == 2


def test_a_broken_stream_says_whether_it_had_been_answered() -> None:
    queue = make("windowed")
    assert not queue.on_broken(0, 1.0)
    attempt = queue.open_stream(0, 2.0)
    queue.on_reply(0, Reply(attempt, 0, 0, 100 * PAGE), 3.0)
    assert queue.on_broken(0, 4.0)
    assert not queue.on_broken(0, 5.0)


def test_attempts_are_counted_over_all_stripes() -> None:
    queue = make("striped")
    for stripe, attempt in ((0, 1), (1, 2), (0, 3)):
        queue.on_broken(stripe, 1.0)
        assert queue.open_stream(stripe, 1.0) == attempt


class Shrinking:
    """A window that a test may make smaller."""

    is_shared = False

    def __init__(self) -> None:
        self.size = 100 * PAGE

    def window_bytes(self) -> int:
        return self.size


def test_who_cannot_send_leaves_the_line_for_credit() -> None:
    """A window that shrank, or a broken stripe, must not hold up the pair's other transfers."""
    for stop in ("window", "broken"):
        credit, window = Credit(2 * PAGE), Shrinking()
        first = make("windowed", credit=credit, window=window, name="first")
        other = make("windowed", credit=credit, name="other")
        first.pages_ready(12, 1.0)
        other.pages_ready(12, 1.0)
        assert len(pull(first)) == 2
        assert pull(other) == []
        first.on_reply(0, Reply(0, 1, PAGE, 2 * PAGE), 2.0)
        assert credit.next_in_line() == TransferId("first")
        if stop == "window":
            window.size = 0
            assert pull(first) == []
        else:
            first.on_broken(0, 2.0)
        assert len(pull(other)) >= 1


def test_who_would_rather_fill_a_frame_leaves_the_line_for_credit() -> None:
    """The path has become faster: what was a frame of it is now a small one."""
    path, credit = PathEstimator(), Credit(HALF_MIB_PAGES.page_bytes)
    path.on_ping(0.2, now=0.0)
    path.delivered(path.sent(2**20, now=0.0), 2**20, now=0.1)
    first, other = (
        make(
            "auto",
            credit=credit,
            path=path,
            name=name,
            layout=HALF_MIB_PAGES,
            settings=TransferSettings(),
        )
        for name in ("first", "other")
    )
    first.pages_ready(2, 1.0)
    other.pages_ready(12, 1.0)
    assert len(pull(first)) == 1 and pull(other) == []
    assert credit.waits(TransferId("first")) and credit.waits(TransferId("other"))
    for now in (2.0, 2.3, 2.6):
        path.delivered(path.sent(2**27, now=now), 2**27, now=now)
    assert pull(first) == []
    assert not credit.waits(TransferId("first"))


def test_stall_clock_does_not_run_while_others_hold_the_credit() -> None:
    credit = Credit(PAGE)
    holder = make("windowed", credit=credit, name="holder")
    waiter = make("windowed", credit=credit, name="waiter")
    for queue in (holder, waiter):
        queue.pages_ready(12, 1.0)
        pull(queue)
        queue.on_reply(0, Reply(0, 0, 0, PAGE), 1.0)  # heard
    assert holder.deadline() == 1.0 + SETTINGS.stall_s
    assert waiter.deadline() is None


def test_stall_clock_does_not_run_without_work() -> None:
    queue = make("pipelined")
    ack(queue, 0, 0, now=1.0)
    assert queue.deadline() is None
    queue.pages_ready(4, 5.0)
    assert queue.deadline() == 5.0 + SETTINGS.stall_s
    pull(queue, now=6.0)
    ack(queue, 1, 4 * PAGE, now=7.0)
    assert queue.deadline() is None
    queue.pages_ready(12, 8.0)
    pull(queue, now=8.0)
    ack(queue, 1, 4 * PAGE, now=9.0)  # nothing new
    assert queue.deadline() == 8.0 + SETTINGS.stall_s


def test_reconnecting_without_progress_stalls() -> None:
    """A connection that comes back again and again does not keep a dead transfer alive."""
    queue = make("windowed")
    queue.pages_ready(12, 0.0)
    now = 0.0
    while now < SETTINGS.stall_s - 1:
        pull(queue, now=now)
        queue.on_broken(0, now)
        attempt = queue.open_stream(0, now + 0.5)
        queue.on_reply(0, Reply(attempt, 0, 0, 100 * PAGE), now + 0.6)
        now += 1.0
    assert queue.deadline() == SETTINGS.stall_s
