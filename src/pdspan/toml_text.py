"""Settings as TOML text that ``pdcore.settings.load_cluster`` reads back to equal settings.

A value that is None has no spelling in TOML and is left out, which means the same.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pdcore.settings import ClusterSettings


def settings_to_toml(settings: ClusterSettings) -> str:
    return "\n".join(_lines(asdict(settings), ())) + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Plain values of a table first, since what follows a table's header belongs to that table."""
    present = {key: value for key, value in table.items() if value is not None}
    for key, value in present.items():
        if not isinstance(value, Mapping | tuple):
            yield f"{key} = {_literal(value)}"
    for key, value in present.items():
        inner = (*path, key)
        if isinstance(value, Mapping):
            yield from ("", f"[{'.'.join(inner)}]", *_lines(value, inner))
        elif isinstance(value, tuple):
            for item in value:
                yield from ("", f"[[{'.'.join(inner)}]]", *_lines(item, inner))


def _literal(value: str | float | bool) -> str:
    """JSON's spelling is TOML's too, but for DEL, which TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
