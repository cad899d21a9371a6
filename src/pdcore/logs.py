"""Structured logs: one JSON object a line on stderr, with the request id where there is one.

A node's progress while it starts is a log line too (``event`` = ``load``, ``stage``, ``fraction``),
which ``pdspan up`` turns into a progress bar.
"""

import json
import logging
import sys
from datetime import UTC, datetime

_STANDARD = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Everything passed as ``extra`` becomes a key of the object."""

    def __init__(self, cluster: str, node: str) -> None:
        super().__init__()
        self._cluster = cluster
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "cluster": self._cluster,
            "node": self._node,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(cluster: str, node: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(cluster, node))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("httpx", "uvicorn", "asyncio", "grpc"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
