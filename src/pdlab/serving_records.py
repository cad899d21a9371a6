"""What happened in a serving run, as the values that its record holds."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from pdlab.bench import cluster_settings
from pdlab.client import Answer
from pdlab.exposed import exposed_time
from pdlab.host import describe_commit, describe_host
from pdlab.records import ArmRecord, RequestRecord, ServingHeader
from pdlab.scenario import ServingScenario
from pdlab.schedule import Run
from pdlab.workloads.request import Prompt


def header_of(scenario: ServingScenario) -> ServingHeader:
    return ServingHeader(
        scenario=scenario.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        config={
            "scenario": _without_directories(asdict(scenario)),
            "cluster": asdict(cluster_settings(scenario)),
        },
        arms=tuple(
            ArmRecord(arm.name, arm.mode, arm.placement, dict(arm.settings) or None)
            for arm in scenario.arms
        ),
        host=describe_host(),
        commit=describe_commit(),
    )


def recorded(
    answer: Answer, prompt: Prompt, run: Run, link: int, concurrency: int, *, warmup: bool
) -> RequestRecord:
    """``link``: the link's place in the record. ``concurrency``: requests that arrived at once."""
    exposed = exposed_time(answer.timeline)
    transfer = (answer.timeline or {}).get("transfer")
    return RequestRecord(
        arm=run.arm.name,
        repetition=run.repetition,
        index=answer.index,
        link=link,
        scheduled_s=answer.scheduled_s,
        sent_s=answer.sent_s,
        status=answer.status,
        ttft_s=answer.ttft_s,
        e2e_s=answer.e2e_s,
        itl_s=tuple(answer.itl_s),
        prompt_tokens=answer.prompt_tokens,
        token_ids=tuple(answer.token_ids),
        prompt_digest=_digest(prompt),
        error=answer.error,
        warmup=warmup,
        concurrency=concurrency,
        exposed_s=exposed.total_s if exposed else None,
        sent_bytes=transfer["wire_bytes"] if transfer else None,
        timeline=answer.timeline,
    )


def _digest(prompt: Prompt) -> str:
    return sha256(json.dumps(prompt).encode()).hexdigest()[:16]


def _without_directories(config: dict[str, Any]) -> dict[str, Any]:
    """A record names no path of the machine that it was made on."""
    workload, model = config["workload"], Path(config["model"])
    if "path" in workload:
        workload = {**workload, "path": Path(workload["path"]).name}
    is_directory = model.expanduser().is_dir()
    return {**config, "workload": workload, "model": model.name if is_directory else str(model)}
