"""A client's connection: uvicorn's, with a time within which a request's head must have come.

uvicorn itself waits for ever for the first request of a connection, and for the rest of a head that
has begun. Each such connection costs a file descriptor, and they are not endless. Between requests
its own ``timeout_keep_alive`` counts, for bodies ``router.request_body``.
"""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 30.0


class ClientConnection(H11Protocol):
    """Closes itself when a head takes longer than ``HEAD_S``."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watching()

    def _watch_head(self) -> None:
        """The time runs from a head's first byte, or from the connection's start, to its last."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_watching()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._give_up)

    def _stop_watching(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self.transport.close()
