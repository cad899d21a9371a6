"""What the next step computes, and who must make room for it. No I/O, no clock, no torch.

Members are looked at oldest first. One that decodes needs a place for one token; when its pages are
full, or its last page is shared, it takes another, and when none can be had the youngest runner is
preempted (itself, if it is the youngest), so the oldest always advances. What is left of the token
budget goes to prompts and to recomputation, in chunks: those hold all their pages already.
"""

from collections.abc import Sequence as ListOf
from dataclasses import dataclass, field

from decode_node.group import Member
from pdcore.kv_layout import KvLayout
from pdcore.settings import EngineSettings
from pdengine.batch import Slice
from pdengine.page_pool import PagePool
from pdengine.prefix_cache import PrefixCache
from pdengine.sequence import Sequence


@dataclass(slots=True)
class StepPlan:
    """``members`` and ``slices`` run in parallel. ``copies`` (source, target page) are done first,
    in order; each source is draining until the step has ended. ``preempted`` members have lost
    their pages already."""

    members: list[Member] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    preempted: list[Member] = field(default_factory=list)

    def add(self, member: Member, num_tokens: int) -> None:
        self.members.append(member)
        self.slices.append(Slice(member.sequence, num_tokens, member.choices))

    @property
    def num_tokens(self) -> int:
        return sum(step_slice.num_tokens for step_slice in self.slices)


class StepPlanner:
    """Must run between two steps: it moves pages that a step in flight could touch."""

    def __init__(
        self, pool: PagePool, prefix: PrefixCache, layout: KvLayout, settings: EngineSettings
    ) -> None:
        self._pool = pool
        self._prefix = prefix
        self._layout = layout
        self._settings = settings

    def plan(self, running: ListOf[Member]) -> StepPlan:
        """``running`` is sorted, oldest first."""
        plan = StepPlan()
        for member in [member for member in running if member.is_decoding]:
            if self._is_full(plan):
                break
            if member not in plan.preempted and self._make_room(member, running, plan):
                plan.add(member, 1)
        for member in [member for member in running if not member.is_decoding]:
            if self._is_full(plan):
                break
            if member not in plan.preempted:
                budget = self._settings.step_tokens - plan.num_tokens
                plan.add(member, min(member.sequence.num_remaining, budget))
        return plan

    def _is_full(self, plan: StepPlan) -> bool:
        return (
            len(plan.slices) >= self._settings.max_sequences
            or plan.num_tokens >= self._settings.step_tokens
        )

    def _make_room(self, member: Member, running: ListOf[Member], plan: StepPlan) -> bool:
        """A page of its own for the next token's KV; False when ``member`` itself was preempted."""
        while self._needs_page(member.sequence):
            fresh = self._page_for(member)
            if fresh is not None:
                self._give(member.sequence, fresh, plan)
                continue
            # A victim may also have been the other owner of the last page.
            victim = next(other for other in reversed(running) if other not in plan.preempted)
            self._preempt(victim, plan)
            if victim is member:
                return False
        return True

    def _page_for(self, member: Member) -> int | None:
        growth = member.group.growth
        page = None if growth is None else self._pool.draw(growth)
        if page is None and (fresh := self._pool.take(1)) is not None:
            (page,) = fresh
        return page

    def _needs_page(self, sequence: Sequence) -> bool:
        index = sequence.num_computed // self._layout.page_tokens
        return index == len(sequence.pages) or self._pool.num_references(sequence.pages[index]) > 1

    def _give(self, sequence: Sequence, fresh: int, plan: StepPlan) -> None:
        index = sequence.num_computed // self._layout.page_tokens
        if index == len(sequence.pages):
            sequence.pages.append(fresh)
            return
        shared = sequence.pages[index]
        plan.copies.append((shared, fresh))
        self._pool.drain([shared])  # nobody may write to it before the step has copied it
        sequence.pages[index] = fresh

    def _preempt(self, victim: Member, plan: StepPlan) -> None:
        sequence = victim.sequence
        self._prefix.insert(
            sequence.token_ids, sequence.request.cache_salt, sequence.pages, sequence.num_computed
        )
        self._pool.release(sequence.give_up_pages())
        plan.preempted.append(victim)
