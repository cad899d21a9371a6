"""The trace of transfers: one JSON object a line for each thing that happens to one.

    with tracing("transfers.jsonl"):
        ...

Off unless ``tracing`` is on: ``trace_of`` is then None, and nothing is formatted. Lines go through
the logger ``kvtransfer.trace``, which never reaches the node's own log. Times are ``now`` as the
events gave it: the process's monotonic clock, in seconds. A disk that is full ends the trace, never
what is traced.
"""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pdcore.errors import ConfigError

OFF = logging.CRITICAL + 1

log = logging.getLogger("kvtransfer.trace")
log.propagate = False
log.setLevel(OFF)
node_log = logging.getLogger("kvtransfer")


class Trace:
    """Events of one subject: a transfer's id, or the name of a pair."""

    def __init__(self, subject: str) -> None:
        self._subject = subject

    def event(self, name: str, now: float, **fields: Any) -> None:
        line = {"time_s": round(now, 6), "transfer": self._subject, "event": name, **fields}
        log.info(json.dumps(line))


def trace_of(subject: str) -> Trace | None:
    """None while tracing is off."""
    return Trace(subject) if log.isEnabledFor(logging.INFO) else None


@contextmanager
def tracing(path: str | None) -> Iterator[None]:
    """Append to ``path`` what begins in this block; None: nothing. Raises ConfigError."""
    if path is None:
        yield
        return
    try:
        handler = _TraceFile(path, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"transfer.trace: cannot write {path}: {error.strerror}") from None
    handler.setFormatter(logging.Formatter("%(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
        handler.close()


class _TraceFile(logging.FileHandler):
    """Says once that its disk takes no more, and is silent from then on."""

    def handleError(self, _: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        log.removeHandler(self)
        log.setLevel(OFF)
        error = sys.exception()
        reason = error.strerror if isinstance(error, OSError) else error
        node_log.warning("transfer.trace: cannot write %s any more: %s", self.baseFilename, reason)

    def close(self) -> None:
        with suppress(OSError):  # what is left to write does not fit either
            super().close()
