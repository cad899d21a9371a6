"""Chunked prefill: each step computes up to ``step_tokens`` tokens of the prompts that have pages.

Oldest first, several prompts in a step where the budget allows; a long prompt goes through in
chunks, the last ones smaller where its pages leave meanwhile (``prefill_node.chunks``). A finished
prompt keeps its pages until its ``Run`` leaves, since they are still being sent.
A page that a step in flight may touch is not free before that step has ended (it is *draining*).
"""

import asyncio
import logging
from time import monotonic

from pdcore.compute import ComputeThread
from pdcore.errors import InternalError, PdspanError
from pdcore.generation import GenerationRequest
from pdcore.metrics import NodeMetrics
from pdcore.settings import EngineSettings, QueueSettings
from pdengine.batch import Slice
from pdengine.engine import Engine, Sampled
from prefill_node.chunks import MIN_SHARE, Route, StepTimes, Taper, next_chunk
from prefill_node.queue import Job, PrefillQueue

log = logging.getLogger(__name__)


class PrefillWorker:
    """Owns every job's pages, from admission until ``leave``."""

    def __init__(
        self,
        engine: Engine,
        compute: ComputeThread,
        settings: EngineSettings,
        queue: QueueSettings,
        metrics: NodeMetrics,
    ) -> None:
        self._engine = engine
        self._compute = compute
        self._step_tokens = settings.step_tokens
        self._max_sequences = settings.max_sequences
        self._metrics = metrics
        self._queue = PrefillQueue(engine.pool, engine.prefix, engine.layout, queue.max_queued)
        self._running: list[Job] = []
        self._sending: set[Job] = set()  # computed, their pages not yet committed elsewhere
        self._in_step: list[Job] = []
        self._times = StepTimes(settings.step_tokens)
        self._last_alone: Job | None = None  # whose chunk was all of the last step
        self._draining: list[int] = []
        self._work = asyncio.Event()

    @property
    def num_queued(self) -> int:
        return len(self._queue)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_sending(self) -> int:
        return len(self._sending)

    def submit(self, request: GenerationRequest, route: Route | None = None) -> Job:
        """Queue a prompt. ``route``: where its pages go while it is computed; None: they go later.

        Raises PromptTooLong or NoCapacity.
        """
        job = Job(request, route)
        self._queue.add(job)
        self._work.set()
        return job

    def leave(self, job: Job) -> None:
        """The job's ``Run`` ends: give back all that it holds. Idempotent."""
        self._queue.discard(job)
        self._sending.discard(job)
        if job in self._running:
            self._running.remove(job)
        if job in self._in_step:
            self._engine.pool.drain(job.admitted.pages)
            self._draining += job.admitted.pages
            self._in_step.remove(job)
            job.sequence = None
        elif job.sequence is not None:
            self._engine.pool.release(job.sequence.give_up_pages())
        self._work.set()  # pages came back, or the next one in line needs fewer

    async def run(self) -> None:
        while True:
            await self._work.wait()
            await self.step()

    async def step(self) -> None:
        """One chunk of computation; returns at once when nothing has pages to compute into."""
        self._admit()
        jobs, slices = self._plan()
        if not slices:
            self._work.clear()
            return
        start_s = monotonic()
        self._in_step = list(jobs)
        try:
            tokens = await self._compute.run(self._engine.run, slices)
        except PdspanError as error:
            for job in jobs:
                self._fail(job, error)
        else:
            self._advance(jobs, slices, tokens)
        finally:
            self._end_step()
        self._observe(jobs, slices, monotonic() - start_s)

    def _admit(self) -> None:
        for job in self._queue.admit():
            job.started_s = monotonic()
            self._running.append(job)
            self._metrics.cached_tokens.inc(job.cached_tokens)
            job.notify()

    def _plan(self) -> tuple[list[Job], list[Slice]]:
        budget = self._step_tokens
        jobs, slices = [], []
        for job in self._running[: self._max_sequences]:
            if budget == 0:
                break
            sequence = job.admitted
            start, end = sequence.num_computed, sequence.num_tokens
            num_tokens = next_chunk(start, end, budget, self._taper(job))
            choices = tuple(range(job.request.num_choices))
            jobs.append(job)
            slices.append(Slice(sequence, num_tokens, choices))
            budget -= num_tokens
        return jobs, slices

    def _taper(self, job: Job) -> Taper | None:
        """None while it cannot be said whether it pays, and when others wait for the step's rest:
        they would make the smaller step as long as a full one."""
        rate = None if job.route is None else job.route.rate_bytes_per_s
        time = self._times.estimate()
        if not rate or time is None or len(self._running) > 1 or len(self._queue):
            return None
        layout = self._engine.layout
        return Taper(
            send_token_s=layout.page_bytes / layout.page_tokens / rate,
            time=time,
            page_tokens=layout.page_tokens,
            min_tokens=max(layout.page_tokens, self._step_tokens // MIN_SHARE),
        )

    def _observe(self, jobs: list[Job], slices: list[Slice], seconds: float) -> None:
        self._metrics.step_s.observe(seconds)
        alone = jobs[0] if len(jobs) == 1 else None
        if alone is not None:
            same_prompt = alone is self._last_alone
            self._times.on_step(slices[0].num_tokens, seconds, same_prompt=same_prompt)
        self._last_alone = alone

    def _advance(self, jobs: list[Job], slices: list[Slice], tokens: list[Sampled]) -> None:
        for job, step_slice, sampled in zip(jobs, slices, tokens, strict=True):
            self._metrics.prompt_tokens.inc(step_slice.num_tokens)
            if job not in self._in_step:
                continue  # it left while the step ran
            if isinstance(sampled, InternalError):
                self._fail(job, sampled)
                continue
            job.admitted.num_computed += step_slice.num_tokens
            if sampled:
                self._finish(job, sampled)
            job.notify()

    def _finish(self, job: Job, first_tokens: tuple[int, ...]) -> None:
        sequence = job.admitted
        job.first_tokens = first_tokens
        job.finished_s = monotonic()
        self._metrics.generated_tokens.inc(len(first_tokens))
        self._metrics.first_token_s.observe(job.finished_s - job.queued_s)
        self._running.remove(job)
        self._sending.add(job)
        self._engine.prefix.insert(
            sequence.token_ids, job.request.cache_salt, sequence.pages, sequence.num_computed
        )

    def _fail(self, job: Job, error: PdspanError) -> None:
        """End a job for a defect. Its pages may hold the cause: nobody finds them again."""
        log.error("failed: %s", error, extra={"request_id": job.request.request_id})
        if job in self._running:
            self._running.remove(job)
            self._engine.pool.unlabel(job.admitted.pages)
        job.fail(error)

    def _end_step(self) -> None:
        self._in_step = []
        self._engine.pool.drained(self._draining)
        self._draining = []
