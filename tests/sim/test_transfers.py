"""Sender half, simulated link, receiver half: properties that hold whatever the link does."""

from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvtransfer.frame_queue import SenderState
from kvtransfer.incoming import TransferState
from kvtransfer.limits import MODES
from page_memory import TINY
from pdcore.errors import PeerUnavailable, TransferFailed, UnknownTransfer
from pdcore.settings import TransferSettings
from simulated_transfers import Cut, Link, Request, SimulatedTransfer, Simulation, Weather

T = TypeVar("T")
PATIENT = TransferSettings(
    frame_bytes=3 * TINY.page_bytes,
    window_bytes=4 * TINY.page_bytes,
    credit_bytes=6 * TINY.page_bytes,
    stripes=3,
    park_s=1000.0,
    resume_s=1000.0,
    stall_s=5000.0,
)
seconds = st.floats(0.0, 1.0, allow_nan=False)
examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)

transfer_settings = st.builds(
    lambda frame, window, credit, stripes: replace(
        PATIENT,
        frame_bytes=frame,
        window_bytes=window,
        credit_bytes=credit,
        stripes=stripes,
    ),
    frame=st.integers(100, 5 * TINY.page_bytes),
    window=st.integers(1, 12 * TINY.page_bytes),
    credit=st.integers(1, 12 * TINY.page_bytes),
    stripes=st.integers(1, 4),
)
links = st.builds(
    Link,
    delays_s=st.lists(seconds, min_size=1, max_size=4).map(tuple),
    jitter_s=seconds,
    rate=st.sampled_from([500.0, 5e3, 1e6]),
    duplicates=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32),
)
cuts = st.builds(
    Cut,
    at_s=st.floats(0.0, 8.0),
    stripe=st.integers(0, 3),
    sender_notices_s=seconds,
    receiver_notices_s=st.floats(0.0, 4.0),
    reopens_s=seconds,
    arrives_late=st.booleans(),
)
requests = st.builds(
    Request,
    page_ready_s=st.lists(st.floats(0.0, 4.0), min_size=1, max_size=14).map(
        lambda times: tuple(sorted(times))
    ),
    handoff_s=seconds,
    expect_s=st.floats(0.0, 3.0),
    cuts=st.lists(cuts, max_size=4).map(tuple),
)


def timeline(values: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[tuple[float, T], ...]]:
    return st.lists(st.tuples(st.floats(0.0, 8.0), values), max_size=6).map(tuple)


weathers = st.builds(
    Weather,
    pings=timeline(st.floats(1e-4, 4.0)),
    credits=timeline(st.integers(1, 12 * TINY.page_bytes)),
    stripes=timeline(st.integers(1, 8)),
)


def assert_arrived(simulation: Simulation, transfer: SimulatedTransfer) -> None:
    assert transfer.sender_error is None
    assert transfer.committed_s is not None
    assert transfer.incoming is not None
    assert transfer.incoming.state is TransferState.COMMITTED
    assert simulation.sink.pages(transfer.pages) == bytes(transfer.source.data)


def assert_nothing_held(simulation: Simulation) -> None:
    assert simulation.credit.in_flight_bytes == 0
    assert simulation.credit.next_in_line() is None
    assert simulation.registry.num_parked == 0


@pytest.mark.parametrize("mode", MODES)
@examples
@given(transfer_settings, links, st.lists(requests, min_size=1, max_size=3), weathers)
def test_every_page_arrives_once(
    mode: str, values: TransferSettings, link: Link, wanted: list[Request], weather: Weather
) -> None:
    """Any delay, rate, jitter, cuts, duplicates, order of Push and Generate; a credit that is
    shared and changes; connections that come and go; pings that say anything.

    ``Simulation.check`` asserts windows, credit, turns and single writes after every event.
    """
    simulation = Simulation(mode, values, link, wanted, weather)
    simulation.run()
    for transfer in simulation.transfers.values():
        assert_arrived(simulation, transfer)
    assert_nothing_held(simulation)


@pytest.mark.parametrize("mode", MODES)
@examples
@given(
    transfer_settings,
    links,
    requests,
    st.lists(requests, max_size=1),
    st.floats(0.0, 6.0),
    st.booleans(),
    weathers,
)
def test_an_owner_leaves_at_any_moment(
    mode: str,
    values: TransferSettings,
    link: Link,
    request: Request,
    others: list[Request],
    leaves_s: float,
    is_sender: bool,
    weather: Weather,
) -> None:
    """Both ends end, by name; nothing is written afterwards; another transfer is not disturbed."""
    values = replace(values, park_s=20.0, resume_s=20.0)
    change = {"cancel_s": leaves_s} if is_sender else {"abort_s": max(leaves_s, request.expect_s)}
    simulation = Simulation(mode, values, link, [replace(request, **change), *others], weather)
    simulation.run()
    left, *rest = simulation.transfers.values()
    assert left.queue.state is SenderState.CLOSED
    assert left.incoming is not None
    if left.committed_s is not None:
        assert simulation.sink.pages(left.pages) == bytes(left.source.data)
    elif is_sender:
        is_committed = left.incoming.state is TransferState.COMMITTED
        assert (
            is_committed
            or left.incoming.error is None
            or isinstance(left.incoming.error, PeerUnavailable)
        )
    else:
        assert isinstance(left.sender_error, TransferFailed)
    for transfer in rest:
        assert_arrived(simulation, transfer)
    assert_nothing_held(simulation)


LINK = Link(delays_s=(0.05,), jitter_s=0.0, rate=1e6, duplicates=0.0, seed=0)
REQUEST = Request(page_ready_s=(0.0,) * 12, handoff_s=0.0, expect_s=0.0)
STRICT = replace(PATIENT, park_s=1.0, resume_s=2.0, stall_s=10.0)


@pytest.mark.parametrize("mode", MODES)
def test_a_connection_that_never_comes_back(mode: str) -> None:
    cuts = tuple(Cut(0.12, stripe, 0.0, 0.0, 1e6, False) for stripe in range(8))
    simulation = Simulation(mode, STRICT, LINK, [replace(REQUEST, cuts=cuts)])
    simulation.run()
    (transfer,) = simulation.transfers.values()
    assert isinstance(transfer.sender_error, PeerUnavailable)
    assert transfer.incoming is not None
    assert isinstance(transfer.incoming.error, PeerUnavailable)
    assert_nothing_held(simulation)


@pytest.mark.parametrize("mode", MODES)
def test_generate_never_comes(mode: str) -> None:
    simulation = Simulation(mode, STRICT, LINK, [replace(REQUEST, expect_s=50.0)])
    simulation.run()
    (transfer,) = simulation.transfers.values()
    assert isinstance(transfer.sender_error, UnknownTransfer)
    assert not simulation.sink.num_writes
    assert_nothing_held(simulation)


@pytest.mark.parametrize("mode", ["sequential_layer", "sequential", "bulk"])
def test_stop_and_wait_takes_a_round_trip_for_each_frame(mode: str) -> None:
    simulation = Simulation(mode, PATIENT, LINK, [REQUEST])
    simulation.run()
    (transfer,) = simulation.transfers.values()
    num_frames = {"sequential_layer": 36, "sequential": 12, "bulk": 4}[mode]
    assert transfer.queue.num_frames == transfer.queue.round_trips == num_frames
    line_s = transfer.queue.page_bytes / LINK.rate
    assert transfer.committed_s == pytest.approx(num_frames * 0.1 + line_s, rel=0.05)


@pytest.mark.parametrize("mode", ["coalesced", "pipelined", "striped", "auto"])
def test_a_window_that_fits_takes_one_round_trip(mode: str) -> None:
    roomy = replace(PATIENT, window_bytes=2**20, credit_bytes=2**20)
    simulation = Simulation(mode, roomy, LINK, [REQUEST])
    simulation.run()
    (transfer,) = simulation.transfers.values()
    assert transfer.queue.round_trips == 1
    line_s = transfer.queue.page_bytes / LINK.rate
    assert transfer.committed_s == pytest.approx(0.1 + line_s, rel=0.05)
