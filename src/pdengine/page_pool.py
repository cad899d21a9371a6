"""Who may use which page of KV memory. Page numbers only: no tensors, no I/O, no waiting.

    free ──redeem──> reserved ──commit──> used ──release──> free, or cached if labelled
      └────take, draw─────────────────────^ └──share: one more reference, also of cached pages
    reserved, used ──drain──> draining ──drained──> free, or cached if labelled

After every call (``check``) free + cached + reserved + used + draining = total, and promised <=
free + cached, so a promise can always be redeemed. Cached pages have no reference but a label (the
digest of their content); they are taken, least recently used first, when free ones run out. A list
of pages is ownership: ``release`` and ``drained`` empty the list that they are given, so giving
back twice is harmless. For the event loop's thread only.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pdcore.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """A moment of a pool, in pages. ``shared`` are the used ones with more than one reference."""

    free: int
    cached: int
    reserved: int
    used: int
    draining: int
    promised: int
    shared: int
    total: int


@dataclass(frozen=True, slots=True, eq=False)
class Promise:
    """Room for ``num_pages`` pages, not yet pages. Redeemed at once, or drawn on, or withdrawn."""

    num_pages: int


class PagePool:
    """Every page belongs to one state at a time; ``counts`` has their names."""

    def __init__(self, num_pages: int) -> None:
        if num_pages < 1:
            raise ConfigError(f"a page pool of {num_pages} pages; at least 1 is needed")
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))  # a stack: the last page freed is warm
        self._cached: dict[int, None] = {}  # in order of their last use
        self._reserved: set[int] = set()
        self._references: Counter[int] = Counter()  # used pages only, each at least 1
        self._holds: Counter[int] = Counter()  # by tasks that are ending; the page may also be used
        self._promises: dict[Promise, int] = {}  # pages that are left of each
        self._num_promised = 0
        self._num_shared = 0
        self._labels: dict[int, bytes] = {}
        self._pages_by_label: dict[bytes, int] = {}

    @property
    def num_available(self) -> int:
        """Pages that can be promised, taken, or brought back from the cache now."""
        return len(self._free) + len(self._cached) - self._num_promised

    def counts(self) -> PoolCounts:
        return PoolCounts(
            free=len(self._free),
            cached=len(self._cached),
            reserved=len(self._reserved),
            used=len(self._references),
            draining=len(self._holds.keys() - self._references.keys()),
            promised=self._num_promised,
            shared=self._num_shared,
            total=self.num_pages,
        )

    def num_references(self, page: int) -> int:
        """How many owners ``page`` has; it may be written to only by a single one."""
        return self._references[page]

    def promise(self, num_pages: int) -> Promise | None:
        """Set room aside; None when there is not enough that is neither in use nor promised."""
        assert num_pages >= 0
        if num_pages > self.num_available:
            return None
        promise = Promise(num_pages)
        self._promises[promise] = num_pages
        self._num_promised += num_pages
        return promise

    def withdraw(self, promise: Promise) -> None:
        """End a promise. One that was already redeemed or withdrawn is left alone."""
        self._num_promised -= self._promises.pop(promise, 0)

    def redeem(self, promise: Promise, num_pages: int | None = None) -> list[int]:
        """Turn an open promise into reserved pages: all, or ``num_pages`` and waive the rest."""
        assert promise in self._promises, "this promise was redeemed or withdrawn before"
        left = self._promises[promise]
        num_pages = left if num_pages is None else num_pages
        assert 0 <= num_pages <= left
        self.withdraw(promise)
        pages = [self._next_page() for _ in range(num_pages)]
        self._reserved.update(pages)
        return pages

    def draw(self, promise: Promise) -> int | None:
        """A used page out of an open promise, which is smaller by it; None when nothing is left."""
        if not self._promises.get(promise):
            return None
        self._promises[promise] -= 1
        self._num_promised -= 1
        page = self._next_page()
        self._references[page] += 1
        return page

    def commit(self, pages: Sequence[int]) -> None:
        """Reserved pages whose content has arrived whole become used, with one reference."""
        assert self._reserved.issuperset(pages), "only reserved pages can be committed"
        self._reserved.difference_update(pages)
        self._references.update(pages)

    def take(self, num_pages: int) -> list[int] | None:
        """``num_pages`` used pages with one reference each, or None, without touching promises."""
        assert num_pages >= 0
        if num_pages > self.num_available:
            return None
        pages = [self._next_page() for _ in range(num_pages)]
        self._references.update(pages)
        return pages

    def share(self, pages: Sequence[int]) -> bool:
        """One more reference to each of ``pages``, which are used or labelled.

        False, and nothing has changed, when those that would have to come back from the cache are
        promised to others; used pages can always be shared.
        """
        if sum(page in self._cached for page in pages) > self.num_available:
            return False
        for page in pages:
            self._cached.pop(page, None)
            assert self._references[page] or page in self._labels, f"page {page} has no content"
            self._references[page] += 1
            if self._references[page] == 2:
                self._num_shared += 1
        return True

    def release(self, pages: list[int]) -> None:
        """Give back one reference to each page, and empty the list.

        ``pages`` in the order of their tokens: of one list, the last page leaves the cache first,
        since it is of no use to a prefix match without the ones before it.
        """
        while pages:
            page = pages.pop()
            self._drop_reference(page)
            self._rest(page)

    def drain(self, pages: Sequence[int]) -> None:
        """Give back reserved pages, or one reference to each, that local tasks still touch.

        The pages are not used again before ``drained``, whatever happens to other references.
        """
        for page in pages:
            if page in self._reserved:
                self._reserved.remove(page)
            else:
                self._drop_reference(page)
            self._holds[page] += 1

    def drained(self, pages: list[int]) -> None:
        """The tasks that touched these draining pages have ended. Empties the list."""
        while pages:
            page = pages.pop()
            assert self._holds[page] > 0, f"page {page} is not draining"
            self._holds[page] -= 1
            if not self._holds[page]:
                del self._holds[page]
            self._rest(page)

    def label(self, page: int, label: bytes) -> None:
        """Name the final content of a used page. A label that exists stays where it is."""
        assert self._references[page] > 0, f"page {page} is not committed"
        if label in self._pages_by_label:
            return
        assert page not in self._labels, f"page {page} has another label"
        self._labels[page] = label
        self._pages_by_label[label] = page

    def unlabel(self, pages: Sequence[int]) -> None:
        """The content of these pages is not to be found again; who uses them goes on."""
        for page in pages:
            label = self._labels.pop(page, None)
            if label is not None:
                del self._pages_by_label[label]
            if page in self._cached:
                del self._cached[page]
                self._free.append(page)

    def labelled(self, label: bytes) -> int | None:
        """The page with this content, in whatever state; ``share`` it before anything else."""
        return self._pages_by_label.get(label)

    def check(self) -> None:
        """Assert every invariant, recounted from scratch. For tests and debugging."""
        draining = self._holds.keys() - self._references.keys()
        states = (self._free, self._cached, self._reserved, self._references, draining)
        pages = sorted(page for state in states for page in state)
        assert pages == list(range(self.num_pages)), "a page is in no state, or in two"
        assert all(count > 0 for count in self._references.values())
        assert all(count > 0 for count in self._holds.values())
        assert self._num_shared == sum(count > 1 for count in self._references.values())
        assert self._num_promised == sum(self._promises.values())
        assert 0 <= self._num_promised <= len(self._free) + len(self._cached)
        assert self._labels == {page: label for label, page in self._pages_by_label.items()}
        assert self._cached.keys() <= self._labels.keys()
        assert not self._labels.keys() & (self._reserved | set(self._free))

    def _next_page(self) -> int:
        if self._free:
            return self._free.pop()
        page = next(iter(self._cached))
        del self._cached[page]
        del self._pages_by_label[self._labels.pop(page)]
        return page

    def _drop_reference(self, page: int) -> None:
        assert self._references[page] > 0, f"page {page} has no reference to give back"
        self._references[page] -= 1
        if not self._references[page]:
            del self._references[page]
        elif self._references[page] == 1:
            self._num_shared -= 1

    def _rest(self, page: int) -> None:
        """Put a page that nobody holds any more where it belongs."""
        if page in self._references or page in self._holds:
            return
        if page in self._labels:
            self._cached[page] = None
        else:
            self._free.append(page)
