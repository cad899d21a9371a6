"""What of one transfer has not left, or has to leave again: the next run of pages, frame by frame.

Invariant: every layer of every page is here until it is taken, and again once it is put back.
What came back goes first.
"""

from collections import deque
from collections.abc import Iterable

from kvtransfer.frame_size import FrameSize
from kvtransfer.limits import SendLimits
from kvtransfer.messages import PageRun
from kvtransfer.page_cutter import PageCutter
from kvtransfer.path import PathEstimator
from pdcore.kv_layout import KvLayout


class UnsentPages:
    def __init__(
        self, num_pages: int, limits: SendLimits, layout: KvLayout, path: PathEstimator
    ) -> None:
        self._layout = layout
        self._cutter = PageCutter(limits.starts, num_pages, layout.num_layers)
        self._size = FrameSize(limits, layout, path)
        self._returned: deque[PageRun] = deque()

    @property
    def all_ready(self) -> bool:
        return self._cutter.all_ready

    @property
    def is_empty(self) -> bool:
        return self._cutter.all_cut and not self._returned

    def ready(self, num_pages: int) -> bool:
        """Pages [0, num_pages) are final. Says whether that is news."""
        return self._cutter.ready(num_pages)

    def peek(self, *, num_stripes: int, is_idle: bool) -> PageRun | None:
        """The next run that may leave as far as the producer is concerned.

        A small one is held back while it may grow, unless ``is_idle``: nothing is in flight.
        """
        if self._returned:
            return self._returned[0]
        left_bytes = self._cutter.num_uncut * self._layout.layer_bytes
        frame = self._size.shape(left_bytes, num_stripes)
        run = self._cutter.peek(frame)
        if run is None or is_idle or not self._cutter.may_grow(run, frame):
            return run
        return None if self.nbytes(run) < self._size.small_bytes() else run

    def take(self, run: PageRun) -> None:
        """``run`` (the last one peeked at) has left."""
        if self._returned:
            self._returned.popleft()
        else:
            self._cutter.cut(run)

    def put_back(self, runs: Iterable[PageRun]) -> None:
        """In the order in which they are to leave again."""
        self._returned.extendleft(reversed(list(runs)))

    def nbytes(self, run: PageRun) -> int:
        return run.num_parts * self._layout.layer_bytes
