"""The decode loop under any interleaving: pages are conserved, and no token ever changes.

The real loop, planner, reservations, pool and prefix cache run against an engine that checks the
content of every page it reads. Whatever joins, leaves, is stopped or preempted, and whenever: a
choice's tokens are those that it gets alone, and at the end nothing is held.
"""

import asyncio
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from decode_node.group import Group
from decode_node.loop import DecodeLoop
from decode_node.reservations import ADMISSIONS, Reservation, reserve, take_for_prompt
from fake_engine import FakeEngine, alone, first_tokens, kv_of
from gated_compute import GatedCompute, settle
from pdcore.errors import InternalError, NoCapacity, PromptTooLong
from pdcore.generation import FinishReason, GenerationRequest, RequestId, SamplingParams
from pdcore.metrics import NodeMetrics
from pdcore.settings import EngineSettings

pytestmark = pytest.mark.timeout(600)  # finding the shortest failure takes hypothesis minutes


@dataclass(eq=False)
class Client:
    """One request as its client sees it."""

    group: Group
    outputs: list[list[int]] = field(default_factory=list)
    reasons: list[FinishReason | None] = field(default_factory=list)
    stopped: set[int] = field(default_factory=set)  # choices that a stop string ended
    error: InternalError | None = None
    has_left: bool = False

    def __post_init__(self) -> None:
        num_choices = self.group.request.num_choices
        self.outputs = [[] for _ in range(num_choices)]
        self.reasons = [None] * num_choices

    @property
    def is_over(self) -> bool:
        return self.has_left or self.error is not None or None not in self.reasons

    async def follow(self) -> None:
        try:
            async for deltas in self.group.deltas():
                for delta in deltas:
                    assert self.reasons[delta.choice] is None, "nothing after the last token"
                    self.outputs[delta.choice] += delta.token_ids
                    self.reasons[delta.choice] = delta.finish_reason
        except InternalError as error:
            self.error = error

    def check(self) -> None:
        for choice, (output, reason) in enumerate(zip(self.outputs, self.reasons, strict=True)):
            expected, expected_reason = alone(self.group.request, choice)
            assert output == expected[: len(output)]
            if reason is not None and choice not in self.stopped:
                assert (output, reason) == (expected, expected_reason)


@dataclass(eq=False)
class Transfer:
    """A request whose KV another node sends, until it is committed or given up."""

    request: GenerationRequest
    reservation: Reservation
    pages: list[int] | None = None  # once it is open
    has_arrived: bool = False


requests = st.builds(
    GenerationRequest,
    request_id=st.just(RequestId("r")),
    prompt_token_ids=st.lists(st.integers(0, 1), min_size=1, max_size=9).map(tuple),
    sampling=st.builds(SamplingParams, seed=st.integers(0, 2)),
    max_tokens=st.integers(1, 9),
    min_tokens=st.integers(0, 2),
    num_choices=st.integers(1, 3),
    stop_token_ids=st.sampled_from([(), (), (3,)]),
    cache_salt=st.sampled_from(["", "salt"]),
)
which = st.integers(0, 100)


class DecodeLoopMachine(RuleBasedStateMachine):
    @initialize(
        num_pages=st.integers(3, 14),
        page_tokens=st.integers(1, 4),
        step_tokens=st.integers(1, 8),
        max_sequences=st.integers(1, 5),
        prefix_cache=st.booleans(),
        admission=st.sampled_from(sorted(ADMISSIONS)),
    )
    def start(
        self,
        num_pages: int,
        page_tokens: int,
        step_tokens: int,
        max_sequences: int,
        prefix_cache: bool,
        admission: str,
    ) -> None:
        self.admission = ADMISSIONS[admission]
        self.engine = FakeEngine(num_pages, page_tokens, prefix_cache=prefix_cache)
        self.compute = GatedCompute()
        self.loop = DecodeLoop(
            self.engine,
            self.compute,
            EngineSettings(step_tokens=step_tokens, max_sequences=max_sequences),
            NodeMetrics(),
        )
        self.clients: list[Client] = []
        self.transfers: list[Transfer] = []
        self.numbers = count()
        self.runner = asyncio.Runner()
        self.events = self.runner.get_loop()
        self.running = self.events.create_task(self.loop.run())
        self.settle()

    @rule(request=requests)
    def prompt_joins(self, request: GenerationRequest) -> None:
        """Colocated: as ``Generate`` does it."""
        if self.loop.num_preempted:
            return
        engine = self.engine
        try:
            room = take_for_prompt(
                engine.pool, engine.prefix, engine.layout, request, self.admission
            )
        except (NoCapacity, PromptTooLong):
            return
        fresh = room.pages[room.num_cached // engine.layout.page_tokens :]
        assert not self.in_flight_pages() & set(fresh)
        group = self.follow(request)
        self.loop.join_prompt(group, room)
        self.settle()

    @rule(request=requests)
    def transfer_is_announced(self, request: GenerationRequest) -> None:
        if self.loop.num_preempted:
            return
        try:
            reservation = reserve(self.engine.pool, self.engine.layout, request, self.admission)
        except (NoCapacity, PromptTooLong):
            return
        self.transfers.append(Transfer(request, reservation))

    @precondition(lambda self: any(t.pages is None for t in self.transfers))
    @rule(which=which)
    def transfer_opens(self, which: int) -> None:
        """The bytes that arrive first are not yet those of the last frame."""
        transfer = pick([t for t in self.transfers if t.pages is None], which)
        num_pages = self.engine.layout.num_pages(len(transfer.request.prompt_token_ids))
        transfer.pages = list(transfer.reservation.open(num_pages))
        assert len(transfer.pages) == num_pages
        assert not self.in_flight_pages() & set(transfer.pages)
        self.engine.kv.spoil(transfer.pages)

    @precondition(lambda self: any(t.pages is not None for t in self.transfers))
    @rule(which=which)
    def transfer_arrives(self, which: int) -> None:
        transfer = pick([t for t in self.transfers if t.pages is not None], which)
        self.engine.kv.store(transfer.pages, 0, kv_of(transfer.request.prompt_token_ids))
        transfer.has_arrived = True

    @precondition(lambda self: any(t.has_arrived for t in self.transfers))
    @rule(which=which)
    def transfer_is_committed(self, which: int) -> None:
        self.commit(pick([t for t in self.transfers if t.has_arrived], which))

    @precondition(lambda self: self.transfers)
    @rule(which=which, twice=st.booleans())
    def transfer_fails(self, which: int, twice: bool) -> None:
        transfer = pick(self.transfers, which)
        self.transfers.remove(transfer)
        if transfer.pages is not None:
            self.engine.kv.spoil(transfer.pages)  # up to now the receiver could still write
        transfer.reservation.give_back()
        if twice:
            transfer.reservation.give_back()
        self.loop.wake()
        self.settle()

    @precondition(lambda self: any(not client.is_over for client in self.clients))
    @rule(which=which, choice=st.integers(0, 2))
    def choice_is_stopped(self, which: int, choice: int) -> None:
        """A stop string can only be in what the client has seen."""
        client = pick([client for client in self.clients if not client.is_over], which)
        choice %= client.group.request.num_choices
        if client.reasons[choice] is None and client.outputs[choice]:
            client.stopped.add(choice)
        if client.outputs[choice]:
            self.loop.stop_choice(client.group, choice)
            self.settle()
            assert client.reasons[choice] is not None

    @precondition(lambda self: self.clients)
    @rule(which=which)
    def client_leaves(self, which: int) -> None:
        """Perhaps one that has left, or finished, before."""
        client = pick(self.clients, which)
        client.has_left = True
        self.loop.leave(client.group)
        self.settle()

    @precondition(lambda self: self.compute.is_busy)
    @rule()
    def step_ends(self) -> None:
        self.compute.finish()
        self.settle()

    @precondition(lambda self: self.compute.is_busy)
    @rule()
    def step_fails(self) -> None:
        """Everybody in the step is told; nobody else is."""
        before = [client for client in self.clients if not client.is_over]
        self.engine.fail_next = InternalError("no token can be sampled")
        self.compute.finish()
        self.settle()
        in_step = {piece.sequence.request.request_id for piece in self.engine.steps[-1]}
        failed = {client.group.request.request_id for client in before if client.error}
        running = {client.group.request.request_id for client in before}
        assert failed == in_step & running

    @invariant()
    def pages_add_up(self) -> None:
        if hasattr(self, "engine"):
            self.engine.pool.check()

    @invariant()
    def the_loop_lives(self) -> None:
        """It computes whenever it can: no wake-up is lost."""
        if not hasattr(self, "engine"):
            return
        assert not self.running.done()
        if not self.compute.is_busy:
            assert self.loop.num_running == 0
            assert self.loop.num_preempted == 0 or self.transfers
            self.loop.wake()
            self.settle()
            assert not self.compute.is_busy

    @invariant()
    def who_has_reserved_all_is_never_preempted(self) -> None:
        if hasattr(self, "engine") and self.admission.lasts:
            assert self.loop.num_preempted == 0

    @invariant()
    def use_is_within_what_is_set_aside(self) -> None:
        if hasattr(self, "engine"):
            use = self.loop.kv_use()
            assert 0 <= use.live_tokens <= use.reserved_tokens
            assert (
                use.reserved_tokens <= self.engine.pool.num_pages * self.engine.layout.page_tokens
            )

    @invariant()
    def the_oldest_come_first(self) -> None:
        if hasattr(self, "engine") and self.compute.is_busy:
            members = self.compute.args[0].members
            ages = [(not m.is_decoding, m.order, m.sequence.choice) for m in members]
            assert ages == sorted(ages)

    @invariant()
    def tokens_are_right(self) -> None:
        for client in getattr(self, "clients", []):
            client.check()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        with self.runner:
            self.finish()

    def finish(self) -> None:
        while self.transfers:
            if self.transfers[0].has_arrived:
                self.commit(self.transfers[0])
            else:
                self.transfer_fails(0, twice=False)
        # Each step computes a token at least; a token may be computed again after a preemption.
        left = [client.group.request for client in self.clients if not client.is_over]
        work = sum(r.num_choices * (len(r.prompt_token_ids) + r.max_tokens) for r in left)
        for _ in range(4 * work + 1):
            if not self.compute.is_busy:
                break
            self.compute.finish()
            self.settle()
        assert not self.compute.is_busy, "it comes to an end"
        for client in self.clients:
            assert client.is_over
            client.check()
        self.engine.pool.check()
        counts = self.engine.pool.counts()
        assert counts.free + counts.cached == counts.total
        assert counts.promised == 0

    def commit(self, transfer: Transfer) -> None:
        self.transfers.remove(transfer)
        room = transfer.reservation.commit()
        transfer.reservation.give_back()
        group = self.follow(transfer.request)
        self.loop.join_received(group, room, first_tokens(transfer.request))
        self.settle()

    def follow(self, request: GenerationRequest) -> Group:
        group = Group(numbered(request, next(self.numbers)))
        client = Client(group)
        self.clients.append(client)
        self.events.create_task(client.follow())
        return group

    def in_flight_pages(self) -> set[int]:
        """What the step in flight still reads or writes."""
        if not self.compute.is_busy:
            return set()
        (plan,) = self.compute.args
        pages = {page for piece in plan.slices for page in piece.sequence.pages}
        return pages | {source for source, _ in plan.copies}

    def settle(self) -> None:
        self.events.run_until_complete(settle())


def pick(items: list, which: int):  # type: ignore[no-untyped-def,type-arg]
    return items[which % len(items)]


def numbered(request: GenerationRequest, number: int) -> GenerationRequest:
    return GenerationRequest(
        RequestId(f"r{number}"),
        request.prompt_token_ids,
        request.sampling,
        request.max_tokens,
        request.min_tokens,
        request.num_choices,
        request.stop_token_ids,
        request.cache_salt,
    )


DecodeLoopMachine.TestCase.settings = settings(
    max_examples=300, stateful_step_count=50, deadline=None
)
TestDecodeLoop = DecodeLoopMachine.TestCase
