"""Finds the pages that already hold the KV of a prompt's first tokens.

A full page's label is a digest chained over layout, salt, and all token ids up to its end. So equal
labels mean equal KV, and a page is never found under another model, layout or salt. The labels live
in the ``PagePool``, which drops one when it takes the page for something else: none ever points to
other content. Only computed pages of a committed sequence are inserted; a page that has lost an
earlier one of its chain is merely not found.
"""

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from pdengine.page_pool import PagePool


class PrefixCache:
    """``fingerprint`` names all that KV depends on besides tokens, such as ``repr(layout)``.

    With ``enabled`` False it finds nothing and keeps nothing.
    """

    def __init__(
        self, pool: PagePool, page_tokens: int, fingerprint: str, enabled: bool = True
    ) -> None:
        self._pool = pool
        self._page_tokens = page_tokens
        self._fingerprint = fingerprint.encode()
        self._enabled = enabled

    def match(self, token_ids: Sequence[int], salt: str) -> list[int]:
        """The longest cached prefix, in whole pages; the caller releases the pages.

        The last token is never part of it, so that one is left to compute logits from. Pages that
        are in the cache but whose room is promised to others are not matched.
        """
        pages: list[int] = []
        if not self._enabled:
            return pages
        for label in self._labels(token_ids, salt, len(token_ids) - 1):
            page = self._pool.labelled(label)
            if page is None or not self._pool.share([page]):
                break
            pages.append(page)
        return pages

    def insert(
        self, token_ids: Sequence[int], salt: str, pages: Sequence[int], num_computed: int
    ) -> None:
        """Make the full pages among the first ``num_computed`` tokens findable.

        ``pages`` is the page table, with a reference of the caller's to each. Where the same
        content is in the cache already, that page stays and the caller's is not kept.
        """
        if self._enabled:
            for page, label in zip(
                pages, self._labels(token_ids, salt, num_computed), strict=False
            ):
                self._pool.label(page, label)

    def _labels(self, token_ids: Sequence[int], salt: str, num_tokens: int) -> Iterator[bytes]:
        """One label for each full page among the first ``num_tokens`` tokens."""
        size = self._page_tokens
        digest = _digest(_digest(self._fingerprint), salt.encode())
        for end in range(size, num_tokens + 1, size):
            digest = _digest(digest, struct.pack(f"<{size}I", *token_ids[end - size : end]))
            yield digest


def _digest(*parts: bytes) -> bytes:
    return blake2b(b"".join(parts), digest_size=16).digest()
