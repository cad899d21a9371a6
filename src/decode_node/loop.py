"""Continuous batching: every step carries whoever is there; newcomers join at the next one.

``step`` tells the story: admit, plan, run, emit, observe. Invariants: only running members are
preempted, the youngest first, and never for someone younger; a page that a step in flight may touch
is not free before that step has ended (it is *draining*). Growth never eats promised room. The loop
neither knows transfers nor RPCs.
"""

import asyncio
import logging
from bisect import insort
from collections.abc import Iterable
from itertools import count
from time import monotonic

from decode_node.group import Deltas, Group, Member
from decode_node.planner import StepPlan, StepPlanner
from decode_node.reservations import Room
from pdcore.compute import ComputeThread
from pdcore.errors import InternalError, PdspanError
from pdcore.generation import FinishReason, TokenDelta
from pdcore.metrics import KvUse, NodeMetrics
from pdcore.settings import EngineSettings
from pdengine.engine import Engine, Sampled
from pdengine.sequence import Sequence

log = logging.getLogger(__name__)


class DecodeLoop:
    """Owns the pages of every member; a group that leaves or a choice that ends returns them."""

    def __init__(
        self,
        engine: Engine,
        compute: ComputeThread,
        settings: EngineSettings,
        metrics: NodeMetrics,
    ) -> None:
        self._engine = engine
        self._compute = compute
        self._planner = StepPlanner(engine.pool, engine.prefix, engine.layout, settings)
        self._metrics = metrics
        self._orders = count()
        self._running: list[Member] = []
        self._preempted: list[Member] = []
        self._in_step: set[Member] = set()
        self._draining: list[int] = []
        self._work = asyncio.Event()

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_preempted(self) -> int:
        return len(self._preempted)

    def kv_use(self) -> KvUse:
        """How much of the memory that is set aside for sequences holds the KV of one."""
        page_tokens = self._engine.layout.page_tokens
        filled: dict[int, int] = {}
        for member in self._running:
            left = member.sequence.num_computed
            for page in member.sequence.pages:
                filled[page] = max(filled.get(page, 0), min(left, page_tokens))
                left = max(0, left - page_tokens)
        counts = self._engine.pool.counts()
        num_pages = counts.used + counts.reserved + counts.promised
        return KvUse(num_pages * page_tokens, sum(filled.values()))

    def join_prompt(self, group: Group, room: Room) -> None:
        """A prompt to prefill here. The room holds all of it and one more token."""
        group.growth = room.growth
        prompt = Sequence(group.request, 0, room.pages, room.num_cached)
        choices = tuple(range(group.request.num_choices))
        self._running.append(Member(group, prompt, choices, next(self._orders)))
        self.wake()

    def join_received(self, group: Group, room: Room, first_tokens: Iterable[int]) -> None:
        """A committed transfer: KV of the whole prompt, and the first token of each choice."""
        group.growth = room.growth
        prompt = Sequence(group.request, 0, room.pages, room.num_cached)
        self._remember(prompt)
        self._branch(Member(group, prompt, (), next(self._orders)), tuple(first_tokens))
        self.wake()

    def stop_choice(self, group: Group, choice: int) -> None:
        """A stop string was found: this choice ends now, with what the client already has."""
        if group.has_finished(choice):
            return
        for member in [*self._running, *self._preempted]:
            if member.group is group and member.choices == (choice,):
                self._remove(member)
                self._tell(group, (TokenDelta(choice, (), FinishReason.STOP),))

    def leave(self, group: Group) -> None:
        """The request is over, whatever the reason: give back what it still holds. Idempotent."""
        for member in [*self._running, *self._preempted]:
            if member.group is group:
                self._remove(member)
        self._end_growth(group)

    def wake(self) -> None:
        """Something changed that may let a step do more: a member came, or pages came back."""
        self._work.set()

    async def run(self) -> None:
        while True:
            await self._work.wait()
            await self.step()

    async def step(self) -> None:
        """One model step for everybody who has pages; returns at once when nobody has."""
        self._readmit()
        plan = self._planner.plan(self._running)
        self._set_aside(plan.preempted)
        if not plan.slices:
            self._work.clear()
            return
        start_s = monotonic()
        self._in_step = set(plan.members)
        self._draining += [source for source, _ in plan.copies]
        try:
            tokens = await self._compute.run(self._execute, plan)
        except PdspanError as error:
            self._end_step()
            for group in {member.group for member in plan.members}:
                self._fail(group, error)
            return
        self._end_step()
        self._emit(plan, tokens)
        self._metrics.step_s.observe(monotonic() - start_s)

    def _execute(self, plan: StepPlan) -> list[Sampled]:
        """On the compute thread."""
        for source, target in plan.copies:
            self._engine.copy_page(source, target)
        self._metrics.copied_pages.inc(len(plan.copies))
        return self._engine.run(plan.slices)

    def _readmit(self) -> None:
        """Preempted members come back, oldest first, as soon as all their tokens have pages."""
        pool, prefix = self._engine.pool, self._engine.prefix
        while self._preempted:
            member = self._preempted[0]
            sequence = member.sequence
            cached = prefix.match(sequence.token_ids, sequence.request.cache_salt)
            wanted = self._engine.layout.num_pages(sequence.num_tokens + 1) - len(cached)
            fresh = pool.take(wanted)
            if fresh is None:
                pool.release(cached)
                return
            sequence.pages = [*cached, *fresh]
            sequence.num_computed = len(cached) * self._engine.layout.page_tokens
            insort(self._running, self._preempted.pop(0), key=_age)

    def _set_aside(self, victims: list[Member]) -> None:
        for member in victims:
            log.info("preempted", extra={"request_id": member.group.request.request_id})
            self._metrics.preemptions.inc()
            self._running.remove(member)
            insort(self._preempted, member, key=_age)

    def _emit(self, plan: StepPlan, tokens: list[Sampled]) -> None:
        now = monotonic()
        for member, step_slice, sampled in zip(plan.members, plan.slices, tokens, strict=True):
            if member not in self._running:
                continue  # it left while the step ran
            if isinstance(sampled, InternalError):
                self._fail(member.group, sampled)
                continue
            member.sequence.num_computed += step_slice.num_tokens
            self._metrics.generated_tokens.inc(len(sampled))
            if not sampled:
                continue
            if member.sequence.num_generated == 0:
                self._remember(member.sequence)
                self._branch(member, sampled)
            else:
                self._metrics.inter_token_s.observe(now - member.last_token_s)
                member.last_token_s = now
                self._advance(member, sampled[0])

    def _advance(self, member: Member, token: int) -> None:
        delta = member.take(member.sequence.choice, token)
        if delta.finish_reason is not None:
            self._remove(member)
        self._tell(member.group, (delta,))

    def _branch(self, prompt: Member, first_tokens: tuple[int, ...]) -> None:
        """The prompt is computed: one member per choice takes its place, sharing all its pages."""
        if prompt in self._running:
            self._running.remove(prompt)
        for _ in first_tokens[1:]:
            self._engine.pool.share(prompt.sequence.pages)
        deltas = []
        for choice, token in enumerate(first_tokens):
            sequence = prompt.sequence.fork(choice, prompt.sequence.pages)
            member = Member(prompt.group, sequence, (choice,), prompt.order)
            delta = member.take(choice, token)
            deltas.append(delta)
            if delta.finish_reason is None:
                insort(self._running, member, key=_age)
            else:
                self._engine.pool.release(sequence.give_up_pages())
        self._tell(prompt.group, tuple(deltas))

    def _tell(self, group: Group, deltas: Deltas) -> None:
        group.emit(deltas)
        if group.is_finished:
            self._end_growth(group)

    def _end_growth(self, group: Group) -> None:
        """Nobody of the group grows any more."""
        if group.growth is not None:
            self._engine.pool.withdraw(group.growth)
            group.growth = None
            self.wake()

    def _remember(self, sequence: Sequence) -> None:
        """Offer the computed full pages to the prefix cache."""
        self._engine.prefix.insert(
            sequence.token_ids, sequence.request.cache_salt, sequence.pages, sequence.num_computed
        )

    def _remove(self, member: Member) -> None:
        """Take a member out and give its pages back, after the step that may still use them."""
        if member in self._preempted:
            self._preempted.remove(member)  # the next one in line may need fewer pages
        else:
            self._running.remove(member)
            self._give_back(member)
        self.wake()

    def _give_back(self, member: Member) -> None:
        if member in self._in_step:
            self._engine.pool.drain(member.sequence.pages)
            self._draining += member.sequence.pages
        else:
            self._remember(member.sequence)
            self._engine.pool.release(member.sequence.give_up_pages())

    def _end_step(self) -> None:
        self._in_step = set()
        self._engine.pool.drained(self._draining)
        self._draining = []

    def _fail(self, group: Group, error: PdspanError) -> None:
        """End a request for a defect. Its pages may hold the cause: nobody finds them again."""
        log.error("failed: %s", error, extra={"request_id": group.request.request_id})
        for member in self._running:
            if member.group is group:
                self._engine.pool.unlabel(member.sequence.pages)
                member.sequence.num_computed = 0
        self.leave(group)
        group.fail(error)


def _age(member: Member) -> tuple[int, int]:
    """Sort key: the oldest first; choices of one request by number."""
    return member.order, member.sequence.choice
