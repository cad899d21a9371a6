"""How this package sees KV memory: two small seams, so that any engine's cache can be shipped.

Bytes of a read or write come in one order: for each page in the order given, its layers from
``first_layer`` on. Both methods are called on the event-loop thread and wait for no network.
"""

from collections.abc import Sequence
from typing import Protocol


class PageSource(Protocol):
    """Where the sender reads. The pages are final: nothing writes to them until the commit."""

    def read(self, pages: Sequence[int], first_layer: int, num_layers: int) -> list[memoryview]:
        """The bytes, in parts of any size. The parts need to stay valid for this step only."""
        ...


class PageSink(Protocol):
    """Where the receiver writes. Only pages that the transfer's owner has set aside for it."""

    def write(
        self, pages: Sequence[int], first_layer: int, num_layers: int, data: memoryview
    ) -> None: ...


class TransferTarget(Protocol):
    """The promise that a transfer is received into."""

    @property
    def num_tokens(self) -> int:
        """Tokens whose KV is expected; a sender that announces another number is refused."""
        ...

    def open(self, num_pages: int) -> Sequence[int]:
        """Turn the promise into page ids, at least ``num_pages``; the first ones are written to.

        Called once, when the first stream opens. Cannot fail for lack of pages.
        """
        ...
