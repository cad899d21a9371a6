"""What a step of an experiment may use: a link that is up and measured, and ends on it.

A step is a part of an experiment that yields cells: ordinary blocks of repetitions
(``pdlab.transfer.blocks``) or a case of its own (``pdlab.transfer.cases``).
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pdlab.link import Link
from pdlab.records import Cell, LinkRecord
from pdlab.transfer.ends import Ends, Program
from pdlab.transfer.trial import Trial

OUR_ENDS = Program(
    sender=(sys.executable, "-m", "pdlab.transfer.sender_end"),
    receiver=(sys.executable, "-m", "pdlab.transfer.receiver_end"),
    environment={"GRPC_VERBOSITY": "ERROR"},
)


@dataclass(frozen=True, slots=True)
class Bench:
    """``ends_of`` says in which processes an arm runs; ``advance`` is called after each move that
    the step has counted."""

    link: Link
    record: LinkRecord
    link_index: int  # of that record
    line_bytes_per_s: float  # what the link carries of payload
    pool_bytes: int
    ends_of: Callable[[str], Ends]
    advance: Callable[[], None]


class Step(Protocol):
    @property
    def trial(self) -> Trial:
        """The link that it needs, and what it moves."""
        ...

    @property
    def num_moves(self) -> int:
        """For the progress bar."""
        ...

    async def run(self, bench: Bench) -> list[Cell]: ...
