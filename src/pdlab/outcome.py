"""What a serving run came to, in a line: did all of it work, and did all arms give equal tokens?

How fast it was is another question, for ``pdspan lab compare``.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import TypeAlias

from pdlab.records import RequestRecord, ServingRecord

PromptPlace: TypeAlias = tuple[int, int]  # repetition, index in the workload


@dataclass(frozen=True, slots=True)
class Outcome:
    num_requests: int
    num_prompts: int  # that more than one arm or link answered
    failed: tuple[RequestRecord, ...]
    differing: tuple[PromptPlace, ...]  # prompts that were not answered alike by all

    @property
    def is_good(self) -> bool:
        return not self.failed and not self.differing

    def __str__(self) -> str:
        failed = ""
        if self.failed:
            first = self.failed[0]
            failed = f", {len(self.failed)} failed, the first in arm {first.arm}: {first.error}"
        if self.differing:
            tokens = f"tokens DIFFER between arms for {len(self.differing)} of {self.num_prompts}"
        else:
            tokens = f"tokens identical in all arms for all {self.num_prompts}"
        return f"{self.num_requests} requests{failed}; {tokens} prompts"


def outcome_of(record: ServingRecord) -> Outcome:
    measured = [request for request in record.requests if not request.warmup]
    answers: dict[PromptPlace, list[tuple[int, ...]]] = defaultdict(list)
    for request in measured:
        if request.status == "ok":
            answers[request.repetition, request.index].append(request.token_ids)
    compared = {place: given for place, given in answers.items() if len(given) > 1}
    return Outcome(
        num_requests=len(measured),
        num_prompts=len(compared),
        failed=tuple(request for request in measured if request.status != "ok"),
        differing=tuple(place for place, given in compared.items() if len(set(given)) > 1),
    )
