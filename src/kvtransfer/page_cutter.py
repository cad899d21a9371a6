"""Cuts the pages of one prompt, in order, into page runs of at most one frame.

Invariant: the runs that were cut cover every layer of every ready page exactly once, in order,
whatever shape of frame each was asked for.
"""

from kvtransfer.limits import FrameShape, Starts
from kvtransfer.messages import PageRun


class PageCutter:
    def __init__(self, starts: Starts, num_pages: int, num_layers: int) -> None:
        self._starts = starts
        self._num_pages = num_pages
        self._num_layers = num_layers
        self._num_ready = 0
        self._page = 0  # the first (page, layer) that is not cut yet
        self._layer = 0

    @property
    def all_ready(self) -> bool:
        return self._num_ready == self._num_pages

    @property
    def all_cut(self) -> bool:
        return self._page == self._num_pages

    @property
    def num_uncut(self) -> int:
        """Of all pages, ready or not, how many layers."""
        return (self._num_pages - self._page) * self._num_layers - self._layer

    def ready(self, num_pages: int) -> bool:
        """Pages [0, num_pages) are final. Says whether that is news."""
        assert num_pages <= self._num_pages, f"page {num_pages} of {self._num_pages} is ready"
        is_news = num_pages > self._num_ready
        self._num_ready = max(self._num_ready, num_pages)
        return is_news

    def peek(self, frame: FrameShape) -> PageRun | None:
        """The next run, or None while nothing may leave."""
        waits = self._starts is Starts.AFTER_PREFILL and not self.all_ready
        if waits or self._page == self._num_ready:
            return None
        layers = min(frame.layers, self._num_layers - self._layer)
        pages = min(frame.pages, self._num_ready - self._page)
        is_whole = layers == self._num_layers
        return PageRun(self._page, pages if is_whole else 1, self._layer, layers)

    def may_grow(self, run: PageRun, frame: FrameShape) -> bool:
        """Whether the next run is smaller than a frame only because later pages are not ready."""
        is_whole = run.num_layers == self._num_layers
        return is_whole and run.num_pages < frame.pages and not self.all_ready

    def cut(self, run: PageRun) -> None:
        """``run`` (the last one peeked at) has left."""
        self._layer += run.num_layers
        if self._layer == self._num_layers:
            self._page += run.num_pages
            self._layer = 0
