"""The prefill worker under any interleaving: pages are conserved, order holds, tokens are right.

The real queue, worker, pool and prefix cache run against an engine that checks the content of every
page it reads. Jobs come, leave (also while a step is in flight or while their pages are sent) and
fail at any time; at the end nothing is held. A step takes a second for each token, so that the ends
of prompts whose pages leave meanwhile are cut the same way each time.
"""

import asyncio
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fake_engine import FakeEngine, first_tokens
from gated_compute import GatedCompute, settle
from pdcore.errors import InternalError, NoCapacity, PromptTooLong
from pdcore.generation import GenerationRequest, RequestId, SamplingParams
from pdcore.metrics import NodeMetrics
from pdcore.settings import EngineSettings, QueueSettings
from prefill_node.queue import Job
from prefill_node.worker import PrefillWorker

pytestmark = pytest.mark.timeout(600)  # finding the shortest failure takes hypothesis minutes

MAX_QUEUED = 4


@dataclass(eq=False)
class Run:
    """A job and what its ``Run`` sees of it."""

    job: Job
    progress: list[int] = field(default_factory=list)
    error: InternalError | None = None
    is_over: bool = False
    has_left: bool = False

    async def follow(self) -> None:
        try:
            async for num_final in self.job.progress():
                self.progress.append(num_final)
        except InternalError as error:
            self.error = error
        self.is_over = True

    @property
    def is_queued(self) -> bool:
        return not self.has_left and self.job.started_s is None

    @property
    def is_computing(self) -> bool:
        return not (self.has_left or self.is_queued or self.is_over)


requests = st.builds(
    GenerationRequest,
    request_id=st.just(RequestId("r")),
    prompt_token_ids=st.lists(st.integers(0, 1), min_size=1, max_size=12).map(tuple),
    sampling=st.builds(SamplingParams, seed=st.integers(0, 2)),
    max_tokens=st.integers(1, 3),
    num_choices=st.integers(1, 3),
    cache_salt=st.sampled_from(["", "salt"]),
)
which = st.integers(0, 100)


@dataclass(frozen=True)
class Route:
    rate_bytes_per_s: float | None


routes = st.one_of(st.none(), st.builds(Route, st.sampled_from([None, 20.0, 50.0, 500.0])))


class PrefillWorkerMachine(RuleBasedStateMachine):
    @initialize(
        num_pages=st.integers(2, 14),
        page_tokens=st.integers(1, 4),
        step_tokens=st.integers(1, 10),
        max_sequences=st.integers(1, 4),
        prefix_cache=st.booleans(),
    )
    def start(
        self,
        num_pages: int,
        page_tokens: int,
        step_tokens: int,
        max_sequences: int,
        prefix_cache: bool,
    ) -> None:
        self.engine = FakeEngine(num_pages, page_tokens, prefix_cache=prefix_cache)
        self.compute = GatedCompute()
        self.step_tokens = step_tokens
        self.worker = PrefillWorker(
            self.engine,
            self.compute,
            EngineSettings(step_tokens=step_tokens, max_sequences=max_sequences),
            QueueSettings(max_queued=MAX_QUEUED),
            NodeMetrics(),
        )
        clock = patch("prefill_node.worker.monotonic", lambda: self.engine.num_computed_tokens)
        clock.start()
        self.stop_clock = clock.stop
        self.runs: list[Run] = []
        self.runner = asyncio.Runner()
        self.events = self.runner.get_loop()
        self.running = self.events.create_task(self.worker.run())
        self.settle()

    @rule(request=requests, route=routes)
    def job_comes(self, request: GenerationRequest, route: Route | None) -> None:
        wanted = self.engine.layout.num_pages(len(request.prompt_token_ids))
        try:
            job = self.worker.submit(request, route)
        except PromptTooLong:
            assert wanted > self.engine.pool.num_pages
            return
        except NoCapacity:
            assert self.worker.num_queued == MAX_QUEUED
            return
        assert self.worker.num_queued <= MAX_QUEUED
        run = Run(job)
        self.runs.append(run)
        self.events.create_task(run.follow())
        self.settle()

    @precondition(lambda self: self.runs)
    @rule(which=which)
    def job_leaves(self, which: int) -> None:
        """Perhaps one that has left before."""
        run = self.runs[which % len(self.runs)]
        run.has_left = True
        self.worker.leave(run.job)
        self.settle()

    @precondition(lambda self: self.compute.is_busy)
    @rule()
    def step_ends(self) -> None:
        computing = [run for run in self.runs if run.is_computing]
        left_in_flight = [run for run in self.runs if run.has_left]
        before = {id(run): run.progress[-1] for run in computing}
        self.compute.finish()
        self.settle()
        sizes = [piece.num_tokens for piece in self.engine.steps[-1]]
        assert sum(sizes) <= self.step_tokens
        advanced = [run.progress[-1] > before[id(run)] for run in computing]
        if not left_in_flight:  # the oldest first, and nobody is passed over
            assert advanced == sorted(advanced, reverse=True) and advanced[0]

    @precondition(lambda self: self.compute.is_busy)
    @rule()
    def step_fails(self) -> None:
        before = {id(run) for run in self.runs if run.error is not None}
        self.engine.fail_next = InternalError("no token can be sampled")
        self.compute.finish()
        self.settle()
        in_step = {id(piece.sequence) for piece in self.engine.steps[-1]}
        for run in self.runs:
            if id(run) not in before and run.error is not None and not run.has_left:
                assert id(run.job.sequence) in in_step

    @invariant()
    def pages_add_up(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.engine.pool.check()
        for run in self.runs:
            sequence = run.job.sequence
            if sequence is not None and not run.has_left:
                num_prompt = len(run.job.request.prompt_token_ids)
                assert len(sequence.pages) == self.engine.layout.num_pages(num_prompt)

    @invariant()
    def the_queue_is_first_come_first_served(self) -> None:
        queued = [run.is_queued for run in getattr(self, "runs", []) if not run.has_left]
        assert queued == sorted(queued)

    @invariant()
    def the_worker_lives(self) -> None:
        """It computes whenever it can: no wake-up is lost."""
        if not hasattr(self, "engine"):
            return
        assert not self.running.done()
        if self.compute.is_busy:
            return
        assert not any(run.is_computing for run in self.runs)
        head = next((run for run in self.runs if run.is_queued), None)
        if head is not None:
            wanted = self.engine.layout.num_pages(len(head.job.request.prompt_token_ids))
            assert wanted > self.engine.pool.num_available, "the head waits for nothing"

    @invariant()
    def results_are_right(self) -> None:
        for run in getattr(self, "runs", []):
            assert run.progress == sorted(set(run.progress))
            if run.job.first_tokens and not run.has_left:
                request = run.job.request
                assert run.job.first_tokens == first_tokens(request)
                assert run.progress[-1] == len(request.prompt_token_ids)
                assert self.engine.holds_kv(
                    run.job.admitted.pages, request.prompt_token_ids, run.progress[-1]
                )

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        with self.runner:
            self.finish()
        self.stop_clock()

    def finish(self) -> None:
        """Whoever is done leaves, in order, until nobody is left."""
        waiting = [run for run in self.runs if not run.has_left]
        # Each step computes a token at least; the first one may be of jobs that left.
        for _ in range(2 + sum(len(run.job.request.prompt_token_ids) for run in waiting)):
            for run in waiting:
                if run.is_over and not run.has_left:
                    run.has_left = True
                    self.worker.leave(run.job)
            self.settle()
            if not self.compute.is_busy:
                break
            self.compute.finish()
            self.settle()
        assert all(run.has_left for run in self.runs)
        self.engine.pool.check()
        counts = self.engine.pool.counts()
        assert counts.free + counts.cached == counts.total
        assert (self.worker.num_queued, self.worker.num_running) == (0, 0)

    def settle(self) -> None:
        self.events.run_until_complete(settle())


PrefillWorkerMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None
)
TestPrefillWorker = PrefillWorkerMachine.TestCase
