"""Runs a serving scenario: ``run_serving`` tells the story, and leaves a record behind.

Only the record joins this to what is said of it later. A request that fails is recorded as such; a
node that ends stops the run, and the record then has no end line.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from pdlab.bench import Bench, Model, open_benches
from pdlab.client import Answer, Call
from pdlab.record_files import ServingWriter
from pdlab.records import RequestRecord
from pdlab.scenario import Arm, ServingScenario
from pdlab.schedule import Run, link_groups, num_runs, runs_of
from pdlab.serving_records import header_of, recorded
from pdlab.workloads import WorkRequest, scheduled

Report = Callable[[str, float], None]


def run_serving(
    scenario: ServingScenario,
    model: Model,
    path: Path,
    report: Report,
    *,
    logs: Path | None = None,
    number: int = 1,
) -> None:
    """Write the record ``path``; the nodes' logs go to ``logs``, by default beside it.

    ``number`` is this run's among ``scenario.runs``: another one has other prompts and another
    order. Raises ConfigError for what this machine cannot do, PeerUnavailable for a node that
    ended.
    """
    seed = f"{scenario.seed}/{number}"
    logs = logs or path.with_suffix(".logs")
    task = scenario.name if scenario.runs == 1 else f"{scenario.name} {number}/{scenario.runs}"
    done, total = 0, num_runs(scenario)
    scenario.workload.requests(model.vocabulary, seed)  # a file that cannot be read is found now
    with ServingWriter(path, header_of(scenario)) as record:
        for links in link_groups(scenario):
            report(task, done / total)
            with open_benches(scenario, links, model, logs) as benches:
                places = {link: record.add_link(benches[link].record) for link in links}
                for run in runs_of(scenario, links, seed):
                    requests = requests_of(scenario, run, model, seed)
                    for line in perform(scenario, run, requests, benches[run.link], places):
                        record.add(line)
                    done += 1
                    report(task, done / total)
        record.finish()


def requests_of(scenario: ServingScenario, run: Run, model: Model, seed: str) -> list[WorkRequest]:
    """The same prompts for every arm and link of a block."""
    seed = f"{seed}/{run.repetition}"
    requests = scenario.workload.requests(model.vocabulary, seed)
    return scheduled(requests, scenario.arrivals, seed)[: run.num_requests]


def perform(
    scenario: ServingScenario,
    run: Run,
    requests: Sequence[WorkRequest],
    bench: Bench,
    places: dict[int, int],
) -> Iterator[RequestRecord]:
    """One arm's requests of one block, all answered. ``places``: of the links in the record."""
    salt = f"{run.arm.name}/{run.repetition}/{uuid4().hex}"
    if scenario.prime:
        primers = [WorkRequest(prompt, 1) for prompt in dict.fromkeys(r.prompt for r in requests)]
        for answer in send(primers, run.arm, bench, salt, scenario.timeout_s):
            prompt = primers[answer.index].prompt
            yield recorded(answer, prompt, run, places[run.link], 1, warmup=True)
    bench.rest(scenario.idle_s)
    at_once = num_at_once(requests)
    for answer in send(requests, run.arm, bench, salt, scenario.timeout_s):
        prompt = requests[answer.index].prompt
        yield recorded(answer, prompt, run, places[run.link], at_once, warmup=run.is_warmup)


def num_at_once(requests: Sequence[WorkRequest]) -> int:
    """How many a burst has; 1 for requests that come one after the other."""
    arrivals = {request.arrival_s for request in requests}
    return len(requests) if len(arrivals) == 1 and arrivals != {None} else 1


def send(
    requests: Sequence[WorkRequest], arm: Arm, bench: Bench, salt: str, timeout_s: float
) -> list[Answer]:
    """Raises PeerUnavailable for a node that has ended."""
    cluster = bench.clusters[arm.name]
    calls = [
        Call(index, body_of(request, arm, salt), request.arrival_s)
        for index, request in enumerate(requests)
    ]
    answers = bench.client.call(cluster.url, calls, timeout_s)
    bench.used()
    cluster.check()
    return answers


def body_of(request: WorkRequest, arm: Arm, salt: str) -> dict[str, object]:
    """A request to ``/v1/completions`` that says everything a record needs. Greedy, and as long as
    it was asked to be, so that every arm does the same work."""
    params = {"placement": arm.placement} | ({"mode": arm.mode} if arm.mode else {})
    return {
        "prompt": request.prompt,
        "max_tokens": request.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "cache_salt": salt,
        "kv_transfer_params": params,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "timeline": True,
    }
