"""Which layers of which pages of one transfer have arrived, in whatever order they came.

Invariant: ``num_missing`` counts the (page, layer) pairs that were never added; adding one again
changes nothing. Holds no bytes: those go straight into their pages.
"""

from collections.abc import Iterable

from kvtransfer.messages import PageRun
from pdcore.errors import ProtocolViolation
from pdcore.kv_layout import KvLayout


class Reassembly:
    def __init__(self, num_pages: int, layout: KvLayout) -> None:
        self._layout = layout
        self._arrived = [0] * num_pages  # of each page, a bit for each layer
        self._num_missing = num_pages * layout.num_layers

    @property
    def num_missing(self) -> int:
        return self._num_missing

    @property
    def is_complete(self) -> bool:
        return self._num_missing == 0

    def check(self, runs: Iterable[PageRun], payload_bytes: int) -> None:
        """Raises ProtocolViolation unless the runs lie in the transfer and fill the payload."""
        num_parts = 0
        for run in runs:
            self._check_run(run)
            num_parts += run.num_parts
        expected = num_parts * self._layout.layer_bytes
        if not num_parts or expected != payload_bytes:
            raise ProtocolViolation(
                f"the payload of a frame is {payload_bytes} bytes, its page runs hold {expected}"
            )

    def add(self, run: PageRun) -> bool:
        """Says whether any part of ``run`` is new."""
        layers = ((1 << run.num_layers) - 1) << run.first_layer
        before = self._num_missing
        for page in range(run.first_page, run.first_page + run.num_pages):
            self._num_missing -= (layers & ~self._arrived[page]).bit_count()
            self._arrived[page] |= layers
        return self._num_missing < before

    def _check_run(self, run: PageRun) -> None:
        num_pages, num_layers = len(self._arrived), self._layout.num_layers
        last_page, last_layer = run.first_page + run.num_pages, run.first_layer + run.num_layers
        is_inside = last_page <= num_pages and last_layer <= num_layers
        if not run.num_parts or not is_inside:
            raise ProtocolViolation(
                f"a frame holds pages {run.first_page} to {last_page} and layers"
                f" {run.first_layer} to {last_layer} (ends excluded); the transfer has"
                f" {num_pages} pages of {num_layers} layers"
            )
