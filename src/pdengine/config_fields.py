"""Typed reads from a parsed ``config.json``; a wrong value is one clear ``ConfigError``.

Absent and ``null`` mean the same, as in transformers: the default, or an error where there is none.
Knows JSON types, no model.
"""

from collections.abc import Mapping
from typing import Any

from pdcore.errors import ConfigError


class ConfigFields:
    """``where`` is the path that errors show."""

    def __init__(self, table: Mapping[str, Any], where: str) -> None:
        self.table = table
        self.where = where

    def error(self, name: str, supported: str) -> ConfigError:
        """``path: field is value; supported: ...``, to be raised by the caller."""
        return ConfigError(
            f"{self.where}: {name} is {self.table.get(name)!r}; supported: {supported}"
        )

    def positive(self, name: str, default: int | None = None) -> int:
        """A whole number, at least 1."""
        value = self._or_default(name, default)
        if type(value) is not int or value < 1:
            raise self.error(name, "a whole number, at least 1")
        return value

    def optional_positive(self, name: str, default_if_absent: int) -> int | None:
        """As ``positive``, but a ``null`` that is written down stays None."""
        if name in self.table and self.table[name] is None:
            return None
        return self.positive(name, default_if_absent)

    def count(self, name: str, default: int) -> int:
        """A whole number, at least 0."""
        value = self._or_default(name, default)
        if type(value) is not int or value < 0:
            raise self.error(name, "a whole number, at least 0")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number greater than 0."""
        value = self._or_default(name, default)
        if type(value) not in (int, float) or value <= 0:
            raise self.error(name, "a number greater than 0")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._or_default(name, default)
        if type(value) is not bool:
            raise self.error(name, "true or false")
        return value

    def only(self, name: str, supported: object) -> None:
        """Refuse every value but ``supported`` and None."""
        value = self.table.get(name)
        if value is not None and value != supported:
            raise self.error(name, "none" if supported is None else f"{supported!r} only")

    def layer_types(self, num_layers: int, known: set[str]) -> list[str] | None:
        """transformers' list of one word per layer, or None where it is absent."""
        value = self.table.get("layer_types")
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != num_layers or not set(value) <= known:
            raise self.error("layer_types", f"{num_layers} times {' or '.join(sorted(known))}")
        return value

    def _or_default(self, name: str, default: object) -> Any:
        value = self.table.get(name)
        return default if value is None else value
