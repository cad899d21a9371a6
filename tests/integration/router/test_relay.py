"""``Relay.run`` against two nodes on loopback: one story, and every way that it can end."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fake_nodes import (
    FixedDiscovery,
    Generating,
    Pair,
    at_once,
    forever,
    token_of,
    two_tokens,
    until,
)
from pdcore.cluster import NodeInfo
from pdcore.errors import (
    DeadlineExceeded,
    EpochMismatch,
    InternalError,
    InvalidRequest,
    NoCapacity,
    NodeDraining,
    PdspanError,
    PeerUnavailable,
    TransferFailed,
    TransferStalled,
    UnknownTransfer,
)
from pdcore.generation import FinishReason, GenerationRequest, RequestId, SamplingParams
from pdcore.settings import TlsSettings
from router import relay as relay_module
from router.answer import Answer, TextDelta
from router.membership import Membership
from router.metrics import RouterMetrics
from router.placement import Arm, open_placer
from router.relay import Job, Outcome, Relay
from router.request_watch import RequestWatch
from tiny_text import tiny_text

pytestmark = pytest.mark.timeout(20)


class Collected:
    """Text by choice, as the client would have it."""

    def __init__(self) -> None:
        self.text: dict[int, str] = {}
        self.has_text = asyncio.Event()

    async def deliver(self, deltas: Sequence[TextDelta]) -> None:
        for delta in deltas:
            self.text[delta.choice] = self.text.get(delta.choice, "") + delta.text
            self.has_text.set()


class Bench:
    """A relay over a pair of fake nodes that are both in view."""

    def __init__(self, pair: Pair, relay: Relay) -> None:
        self.pair = pair
        self.relay = relay
        self.output = Collected()

    async def run(
        self,
        *,
        stops: Sequence[str] = (),
        arm: Arm | None = None,
        num_choices: int = 1,
        timeout_s: float | None = None,
        waited_s: float = 0.0,
    ) -> Outcome:
        """``waited_s``: how long ago the request reached the router."""
        request = GenerationRequest(
            request_id=RequestId("r1"),
            prompt_token_ids=(5, 6, 7),
            sampling=SamplingParams(seed=1),
            max_tokens=10,
            num_choices=num_choices,
            timeout_s=timeout_s,
        )
        watch = RequestWatch(RouterMetrics(CollectorRegistry()), "router")
        watch.timeline.arrived_s -= waited_s
        answer = Answer(tiny_text(), num_choices, stops)
        return await self.relay.run(Job(request, "bulk", arm), answer, self.output, watch)

    async def fails_with(self, error: type[PdspanError], match: str, **options: Any) -> None:
        """The request fails so, and both nodes are rid of it."""
        with pytest.raises(error, match=match):
            await self.run(**options)
        await self.pair.let_go()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Pair() as pair:
        membership = Membership(
            FixedDiscovery(pair.snapshot), TlsSettings(), linger_s=1, model="tiny"
        )
        async with asyncio.TaskGroup() as group:
            following = group.create_task(membership.run())
            await until(lambda: membership.view().pairs())
            yield Bench(pair, Relay(membership, open_placer("round_robin")))
            following.cancel()


async def test_both_calls_start_with_one_transfer_id(bench: Bench) -> None:
    outcome = await bench.run()
    (opening,) = [call.opening for call in bench.pair.decode.calls]
    (run,) = bench.pair.prefill.calls
    assert opening.transfer_id == run.transfer_id == outcome.transfer_id
    assert opening.request == run.request
    assert not opening.local_prefill
    info = bench.pair.decode.view.info
    assert (run.decode_node, run.decode_address) == (info.name, info.address)
    assert (run.decode_epoch, opening.epoch, run.mode) == (info.epoch, info.epoch, "bulk")
    assert bench.output.text == {0: "ab"}
    assert (outcome.usage.completion_tokens, outcome.usage.cached_tokens) == (2, 2)
    assert outcome.prefilled is not None and outcome.prefilled.timeline.transfer.frames == 3


async def test_colocated_needs_no_prefill_node(bench: Bench) -> None:
    outcome = await bench.run(arm=Arm.COLOCATED)
    assert outcome.prefilled is None and outcome.placement.prefill is None
    assert bench.pair.prefill.calls == []
    assert bench.pair.decode.calls[0].opening.local_prefill


async def test_neither_call_waits_for_the_other(bench: Bench) -> None:
    """Each node answers only once it has seen that the other was called."""
    prefill_called, decode_called = asyncio.Event(), asyncio.Event()

    async def prefill(_: Any) -> None:
        prefill_called.set()
        await decode_called.wait()

    async def decode(generating: Generating) -> None:
        decode_called.set()
        await prefill_called.wait()
        await two_tokens(generating)

    bench.pair.prefill.script, bench.pair.decode.script = prefill, decode
    assert (await bench.run()).usage.completion_tokens == 2


async def test_a_stop_string_stops_that_choice_alone(bench: Bench) -> None:
    async def script(generating: Generating) -> None:
        for choice in (0, 1):
            await generating.tokens(token_of("x"), token_of("a"), choice=choice)
        await generating.tokens(token_of("b"), choice=1)
        await generating.has_stopped.wait()
        await generating.tokens(token_of("c"), choice=1, end=FinishReason.STOP)
        await generating.tokens(token_of("d"), choice=0, end=FinishReason.LENGTH)
        await generating.finished()

    bench.pair.decode.script = script
    outcome = await bench.run(stops=["ab"], num_choices=2)
    assert bench.pair.decode.calls[0].stopped == [1]
    assert bench.output.text == {0: "xad", 1: "x"}
    assert outcome.usage.completion_tokens == 3 + 3


def raising(error: PdspanError, telling: asyncio.Event | None = None) -> Any:
    async def script(_: Any) -> None:
        if telling is not None:
            telling.set()
        raise error

    return script


async def test_no_room_at_decode_cancels_prefill(bench: Bench) -> None:
    bench.pair.decode.script = raising(NoCapacity("no room to decode"))
    bench.pair.prefill.script = forever
    await bench.fails_with(NoCapacity, "no room to decode")


async def test_a_failed_prefill_cancels_decode(bench: Bench) -> None:
    bench.pair.decode.script = forever
    bench.pair.prefill.script = raising(InvalidRequest("no such mode: 'bulky'", param="mode"))
    await bench.fails_with(InvalidRequest, "no such mode: 'bulky'")


AFTER_THE_COMMIT = [PeerUnavailable, TransferStalled, TransferFailed, InternalError]


@pytest.mark.parametrize("error", [UnknownTransfer, EpochMismatch, *AFTER_THE_COMMIT])
async def test_decodes_own_reason_comes_before_what_follows_from_it(
    bench: Bench, error: type[PdspanError]
) -> None:
    """The prefill node may hear first that it was let down; the client hears why."""
    prefill_failed = asyncio.Event()

    async def decode(_: Any) -> None:
        await prefill_failed.wait()
        await asyncio.sleep(0.1)
        raise NoCapacity("no room to decode")

    bench.pair.prefill.script = raising(error("let down"), telling=prefill_failed)
    bench.pair.decode.script = decode
    await bench.fails_with(NoCapacity, "no room to decode")


@pytest.mark.parametrize("error", AFTER_THE_COMMIT)
async def test_prefill_may_die_between_the_commit_and_the_first_token(
    bench: Bench, error: type[PdspanError]
) -> None:
    prefill_failed = asyncio.Event()

    async def decode(generating: Generating) -> None:
        await prefill_failed.wait()
        await asyncio.sleep(0.1)
        await two_tokens(generating)

    bench.pair.prefill.script = raising(error("gone"), telling=prefill_failed)
    bench.pair.decode.script = decode
    outcome = await bench.run()
    assert bench.output.text == {0: "ab"} and outcome.prefilled is None


@pytest.mark.parametrize("error", [NoCapacity, InvalidRequest])
async def test_a_refusal_by_the_prefill_node_is_told_at_once(
    bench: Bench, error: type[PdspanError]
) -> None:
    """No page has moved and none will, so there is nothing to wait for."""
    prefill_failed = asyncio.Event()

    async def decode(_: Any) -> None:
        await prefill_failed.wait()
        await asyncio.sleep(0.5)
        raise InternalError("the router still waited")

    bench.pair.prefill.script = raising(error("the queue"), telling=prefill_failed)
    bench.pair.decode.script = decode
    await bench.fails_with(error, "the queue")


async def test_a_refused_transfer_alone_is_told_as_it_is(bench: Bench) -> None:
    bench.pair.decode.script = forever
    bench.pair.prefill.script = raising(UnknownTransfer("no Generate announced this transfer"))
    await bench.fails_with(UnknownTransfer, "no Generate announced")


def draining(num_times: int, otherwise: Any) -> Any:
    """A node that began to stop just before the request came, and one that took its place."""
    left = iter(range(num_times))

    async def script(call: Any) -> None:
        if next(left, None) is not None:
            raise NodeDraining("stopping")
        await otherwise(call)

    return script


@pytest.mark.parametrize("num_times", [1, 2])
@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_node_that_began_to_drain_meanwhile(
    bench: Bench, role: str, num_times: int
) -> None:
    pair = bench.pair
    if role == "prefill":
        pair.prefill.script = draining(num_times, at_once)
        pair.decode.script = after_prefill(bench, num_times + 1)
    else:
        pair.decode.script = draining(num_times, two_tokens)
    outcome = await bench.run()
    assert bench.output.text == {0: "ab"}
    if role == "prefill":
        transfer_ids = [run.transfer_id for run in pair.prefill.calls]
    else:
        transfer_ids = [call.opening.transfer_id for call in pair.decode.calls]
    assert len(set(transfer_ids)) == num_times + 1
    assert transfer_ids[-1] == outcome.transfer_id
    await pair.let_go()


def after_prefill(bench: Bench, num_calls: int) -> Any:
    async def script(generating: Generating) -> None:
        await until(lambda: len(bench.pair.prefill.calls) == num_calls)
        await two_tokens(generating)

    return script


async def test_a_request_is_placed_three_times_at_most(bench: Bench) -> None:
    bench.pair.decode.script = draining(100, two_tokens)
    await bench.fails_with(NodeDraining, "stopping")
    assert len(bench.pair.decode.calls) == 3


async def test_an_answer_that_has_begun_is_not_placed_again(bench: Bench) -> None:
    async def script(generating: Generating) -> None:
        await generating.tokens(token_of("a"))
        raise NodeDraining("stopping")

    bench.pair.decode.script = script
    await bench.fails_with(NodeDraining, "stopping")
    assert len(bench.pair.decode.calls) == 1


async def test_prefill_may_die_once_decode_has_every_page(bench: Bench) -> None:
    async def decode(generating: Generating) -> None:
        await generating.tokens(token_of("a"))
        await prefill_died.wait()
        await generating.tokens(token_of("b"), end=FinishReason.STOP)
        await generating.finished()

    async def prefill(_: Any) -> None:
        await bench.output.has_text.wait()
        prefill_died.set()
        raise PeerUnavailable("gone")

    prefill_died = asyncio.Event()
    bench.pair.decode.script, bench.pair.prefill.script = decode, prefill
    outcome = await bench.run()
    assert bench.output.text == {0: "ab"} and outcome.prefilled is None


async def test_an_answer_does_not_wait_for_a_frozen_prefill_node(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it miss its deadline meanwhile, which it met with its last token."""
    monkeypatch.setattr(relay_module, "TIMELINE_S", 1.2)
    bench.pair.prefill.script = forever
    async with asyncio.timeout(5):
        outcome = await bench.run(timeout_s=1)
    assert bench.output.text == {0: "ab"} and outcome.prefilled is None
    await bench.pair.let_go()


async def test_prefills_timeline_may_come_a_little_later_than_the_answer(bench: Bench) -> None:
    async def prefill(_: Any) -> None:
        await bench.output.has_text.wait()
        await asyncio.sleep(0.1)

    bench.pair.prefill.script = prefill
    assert (await bench.run()).prefilled is not None


async def test_a_stream_that_ends_early_is_no_answer(bench: Bench) -> None:
    async def script(generating: Generating) -> None:
        await generating.tokens(token_of("a"), end=FinishReason.STOP)

    bench.pair.decode.script = script
    await bench.fails_with(InternalError, "decode node d0 ended the stream half way")


async def test_tokens_that_were_lost_are_noticed(bench: Bench) -> None:
    async def script(generating: Generating) -> None:
        await generating.tokens(token_of("a"), end=FinishReason.LENGTH)
        await generating.finished(completion_tokens=2)

    bench.pair.decode.script = script
    await bench.fails_with(InternalError, "counted 2 tokens, 1 arrived")


async def test_a_node_that_makes_no_sense_is_cut_off(bench: Bench) -> None:
    async def script(generating: Generating) -> None:
        await generating.tokens(token_of("a"), choice=5)
        await forever(generating)

    bench.pair.decode.script, bench.pair.prefill.script = script, forever
    await bench.fails_with(InternalError, "tokens of choice 5")


async def test_a_decode_node_that_dies(bench: Bench) -> None:
    async def script(generating: Generating) -> None:
        await generating.tokens(token_of("a"))
        await forever(generating)

    bench.pair.decode.script = script
    bench.pair.prefill.script = forever
    async with asyncio.TaskGroup() as group:
        running = group.create_task(bench.fails_with(PeerUnavailable, "decode node d0"))
        await bench.output.has_text.wait()
        await bench.pair.decode.server.stop(0)
        await running


async def test_a_prefill_node_that_dies(bench: Bench) -> None:
    bench.pair.decode.script = bench.pair.prefill.script = forever
    async with asyncio.TaskGroup() as group:
        running = group.create_task(bench.fails_with(PeerUnavailable, "prefill node p0"))
        await until(lambda: bench.pair.prefill.calls)
        await bench.pair.prefill.server.stop(0)
        await running


async def test_a_deadline_ends_both_calls(bench: Bench) -> None:
    bench.pair.decode.script = bench.pair.prefill.script = forever
    await bench.fails_with(DeadlineExceeded, "deadline of 0.2 s has passed", timeout_s=0.2)
    assert len(bench.pair.decode.calls) == len(bench.pair.prefill.calls) == 1


async def test_a_deadline_counts_from_the_requests_arrival(bench: Bench) -> None:
    """Reading and encoding a long prompt is part of it; the nodes are told what is left."""
    await bench.run(timeout_s=100, waited_s=40)
    (opening,) = [call.opening for call in bench.pair.decode.calls]
    (run,) = bench.pair.prefill.calls
    assert opening.request.timeout_s == run.request.timeout_s
    assert 0 < opening.request.timeout_s <= 60


async def test_a_deadline_that_passed_before_the_nodes_were_asked(bench: Bench) -> None:
    await bench.fails_with(DeadlineExceeded, "deadline of 2 s has passed", timeout_s=2, waited_s=3)
    assert bench.pair.decode.calls == bench.pair.prefill.calls == []


async def test_a_cancelled_request_ends_both_calls(bench: Bench) -> None:
    bench.pair.decode.script = bench.pair.prefill.script = forever
    async with asyncio.TaskGroup() as group:
        running = group.create_task(bench.run())
        await until(lambda: bench.pair.prefill.calls and bench.pair.decode.calls)
        running.cancel()
    await bench.pair.let_go()


async def test_a_node_that_has_just_gone(bench: Bench) -> None:
    placement = bench.relay._placer
    view = bench.relay._cluster.view()
    bench.relay = Relay(_Stale(view), placement)
    with pytest.raises(PeerUnavailable, match="does not answer any more"):
        await bench.run()


class _Stale:
    """A view whose nodes have left since."""

    def __init__(self, view: Any) -> None:
        self._view = view

    def view(self) -> Any:
        return self._view

    def channel(self, node: NodeInfo) -> Any:
        raise PeerUnavailable(f"node {node.name} does not answer any more")
