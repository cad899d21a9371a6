"""One request that decodes while other requests' KV pages arrive: what does a transfer cost it?

The first request is the one to watch. The others ask for a single token each, which the prefill
node computes, so they give the decode node pages and no step. They share one prompt: with ``prime``
the prefill node has it cached, computes next to nothing, and ships at the rate of the line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated

from pdcore.typed_table import Within
from pdlab.workloads.request import WorkRequest, random_tokens

Count = Annotated[int, Within(1)]


@dataclass(frozen=True, slots=True)
class DecodeUnderTransfers:
    """A transfer every ``period_s``, ``num_transfers`` of them, from the start on."""

    prompt_tokens: Count
    output_tokens: Count
    transfer_tokens: Count
    num_transfers: Count
    period_s: Annotated[float, Within(0, above=True)]

    def requests(self, vocabulary: Sequence[int], seed: str) -> list[WorkRequest]:
        random = Random(f"{seed}/tokens")
        watched = random_tokens(vocabulary, self.prompt_tokens, random)
        shipped = random_tokens(vocabulary, self.transfer_tokens, random)
        return [
            WorkRequest(watched, self.output_tokens, arrival_s=0.0),
            *(WorkRequest(shipped, 1, i * self.period_s) for i in range(self.num_transfers)),
        ]
