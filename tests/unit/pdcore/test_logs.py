"""One JSON object a line, with what was passed as ``extra``."""

import json
import logging
import sys
from datetime import datetime

from pdcore.logs import JsonFormatter


def line(record: logging.LogRecord) -> dict[str, object]:
    text = JsonFormatter("paris", "decode-1").format(record)
    assert "\n" not in text
    parsed: dict[str, object] = json.loads(text)
    return parsed


def record(message: str = "ready on %s", *args: object, **extra: object) -> logging.LogRecord:
    logger = logging.getLogger("pdspan.test")
    return logger.makeRecord(
        logger.name, logging.WARNING, "f.py", 1, message, args, None, extra=extra
    )


def test_a_line_has_time_level_node_and_message() -> None:
    parsed = line(record("ready on %s", "127.0.0.1:7001"))
    time = datetime.fromisoformat(str(parsed.pop("time")))
    assert time.tzinfo is not None
    assert parsed == {
        "level": "warning",
        "cluster": "paris",
        "node": "decode-1",
        "message": "ready on 127.0.0.1:7001",
    }


def test_what_is_passed_as_extra_becomes_keys() -> None:
    parsed = line(record("x", request_id="r1", fraction=0.5))
    assert (parsed["request_id"], parsed["fraction"]) == ("r1", 0.5)


def test_a_value_that_json_does_not_know_is_shown_as_text() -> None:
    assert line(record("x", error=KeyError("y")))["error"] == "'y'"


def test_a_message_of_several_lines_stays_one_line() -> None:
    assert line(record("first\nsecond é"))["message"] == "first\nsecond é"


def test_a_traceback_is_part_of_the_line() -> None:
    failed = record("failed")
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError:
        failed.exc_info = sys.exc_info()
    assert "ZeroDivisionError: by zero" in str(line(failed)["traceback"])
