"""What the forwarder is made of, one by one: the ring, the line, the loss, the delay."""

import ctypes
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwarder_library import Delay, Entry, Loss, Rate, Ring, forwarder_library

LIMIT = 4096


class Model:
    """The ring beside what it should be: two queues of (number, size)."""

    def __init__(self) -> None:
        self.ring = Ring()
        self.queued: deque[tuple[int, int]] = deque()
        self.flying: deque[tuple[int, int]] = deque()
        assert forwarder_library().ring_open(ctypes.byref(self.ring), 1 << 20) == 0
        self.set_limit(LIMIT)

    def set_limit(self, limit: int) -> None:
        forwarder_library().ring_set_limit(ctypes.byref(self.ring), limit)

    def push(self, number: int, reserved: int, size: int) -> bool:
        address = forwarder_library().ring_reserve(ctypes.byref(self.ring), reserved)
        if not address:
            return False
        entry = Entry.from_address(address)
        entry.size = size
        ctypes.memset(address + ctypes.sizeof(Entry), number % 251, size)
        forwarder_library().ring_push(ctypes.byref(self.ring), address)
        self.queued.append((number, size))
        return True

    def fly(self) -> None:
        if self.queued:
            forwarder_library().ring_fly(ctypes.byref(self.ring))
            self.flying.append(self.queued.popleft())

    def pop(self) -> None:
        if self.flying:
            forwarder_library().ring_pop(ctypes.byref(self.ring))
            self.flying.popleft()

    def check(self) -> None:
        """Every packet is there, in order, with its bytes."""
        address = self.ring.oldest
        for number, size in [*self.flying, *self.queued]:
            entry = Entry.from_address(address)
            assert entry.size == size
            data = ctypes.string_at(address + ctypes.sizeof(Entry), size)
            assert data == bytes([number % 251]) * size
            address = entry.next
        assert address is None
        flying = forwarder_library().ring_flying(ctypes.byref(self.ring))
        assert bool(flying) == bool(self.flying)


@settings(deadline=None)  # the first call compiles
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(1, 900), st.integers(0, 600)),
            st.tuples(st.just("limit"), st.integers(1000, 8000), st.just(0)),
            st.tuples(st.sampled_from(["fly", "pop"]), st.just(0), st.just(0)),
        ),
        max_size=120,
    )
)
def test_ring_keeps_packets_and_their_order(steps: list[tuple[str, int, int]]) -> None:
    model = Model()
    for number, (step, size, spare) in enumerate(steps):
        if step == "push":
            model.push(number, size + spare, size)
        elif step == "limit":
            model.set_limit(size)
        elif step == "fly":
            model.fly()
        else:
            model.pop()
        model.check()


def test_ring_refuses_what_does_not_fit_and_has_room_again() -> None:
    model = Model()
    pushed = 0
    while model.push(pushed, 500, 500):
        pushed += 1
    assert pushed >= LIMIT // 640
    model.fly()
    model.pop()
    assert model.push(99, 500, 500)
    model.check()


def test_line_sends_one_packet_after_the_other() -> None:
    leaves_ns = forwarder_library().rate_leaves_ns
    line = Rate(bits_per_s=1e9, free_ns=0)
    assert leaves_ns(ctypes.byref(line), 1000, 1500) == 1000 + 12_000
    line.free_ns = 50_000  # busy until then
    assert leaves_ns(ctypes.byref(line), 1000, 1500) == 50_000 + 12_000
    assert leaves_ns(ctypes.byref(Rate(0.0, 50_000)), 1000, 1500) == 1000


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 1.0])
def test_loss_is_the_share_asked_for_however_packets_come(share: float) -> None:
    library = forwarder_library()
    loss = Loss(random=12345)
    library.loss_set(ctypes.byref(loss), share)
    num_packets, num_lost = 0, 0
    while num_packets < 400_000:
        left = 45
        num_packets += left
        while left:
            spared = library.loss_spares(ctypes.byref(loss), left)
            left -= spared
            if left:
                num_lost += 1
                left -= 1
    assert num_lost / num_packets == pytest.approx(share, rel=0.2)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=50))
def test_jitter_stays_in_its_range_and_in_order(gaps_ns: list[int]) -> None:
    delay = Delay(delay_ns=10_000, jitter_ns=4_000, random=99)
    leaves_ns = last_due_ns = 0
    for gap_ns in gaps_ns:
        leaves_ns += gap_ns
        due_ns = forwarder_library().delay_due_ns(ctypes.byref(delay), leaves_ns)
        assert due_ns >= max(last_due_ns, leaves_ns + 10_000)
        assert due_ns <= max(last_due_ns, leaves_ns + 14_000)
        last_due_ns = due_ns
