"""A nested table (parsed TOML) becomes a frozen dataclass, strictly.

Only what our settings and records use is understood: str, int, float, bool, ``X | None``, an enum
of strings, a nested dataclass, ``tuple[X, ...]``, ``Mapping`` (a table taken as it is), and
``Annotated`` with ``Within``, ``OneOf`` or ``Matching``. Everything else in a field's type is our
own defect.
"""

import difflib
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from math import inf, isfinite
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pdcore.errors import ConfigError

T = TypeVar("T")

LARGEST = 2.0**64


@dataclass(frozen=True, slots=True)
class Within:
    """A number from ``low`` to ``high``; ``above`` excludes ``low`` itself."""

    low: float
    high: float = inf
    above: bool = False

    def problem(self, value: float) -> str | None:
        fits = self.low <= value <= self.high and not (self.above and value == self.low)
        upper = "" if self.high == inf else f" and at most {self.high:g}"
        lower = f"more than {self.low:g}" if self.above else f"at least {self.low:g}"
        return None if fits else f"it must be {lower}{upper}"


@dataclass(frozen=True, slots=True)
class OneOf:
    choices: tuple[str, ...]

    def problem(self, value: str) -> str | None:
        return None if value in self.choices else f"one of {', '.join(self.choices)}"


@dataclass(frozen=True, slots=True)
class Matching:
    """A whole text of the form ``pattern``, which ``what`` says in words."""

    pattern: str
    what: str

    def problem(self, value: str) -> str | None:
        return None if re.fullmatch(self.pattern, value) else f"it must be {self.what}"


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity: a type's annotation must be
class OneKindOf:
    """A table whose ``kind`` names the dataclass that its other keys build."""

    kinds: Mapping[str, type]

    def read(self, table: Any, where: str) -> Any:
        if not isinstance(table, Mapping):
            raise ConfigError(f"{where}: expected a table, found {_kind(table)}")
        kind = table.get("kind")
        if not isinstance(kind, str) or kind not in self.kinds:
            raise ConfigError(f"{where}: kind is {kind!r}; one of {', '.join(self.kinds)}")
        rest = {key: value for key, value in table.items() if key != "kind"}
        return read_table(self.kinds[kind], rest, where)


def read_table(cls: type[T], table: Any, where: str) -> T:
    """Build ``cls`` from ``table``; ``where`` is the path shown in errors."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: expected a table, found {_kind(table)}")
    hints = get_type_hints(cls, include_extras=True)
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{_suggestion(key, list(known))}")
    for name, f in known.items():
        required = f.default is MISSING and f.default_factory is MISSING
        if required and name not in table:
            raise ConfigError(f"{where}: key {name!r} is missing")
    values = {key: _read(hints[key], value, f"{where}: {key}") for key, value in table.items()}
    return cls(**values)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid over ``base``, table by table; neither is changed."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        both_tables = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[key] = merged(below, value) if both_tables else value  # type: ignore[arg-type]
    return result


def _read(hint: Any, value: Any, where: str) -> Any:
    if get_origin(hint) is Annotated:
        inner, rule = get_args(hint)
        return _read_annotated(inner, rule, value, where)
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return None if value is None else _read(inner, value, where)
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where}: expected a list, found {_kind(value)}")
        inner = get_args(hint)[0]
        return tuple(_read(inner, item, f"{where}[{i}]") for i, item in enumerate(value))
    if is_dataclass(hint):
        return read_table(hint, value, where)  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if value not in list(hint):
            raise ConfigError(f"{where} is {value!r}; one of {', '.join(hint)}")
        return hint(value)
    return _read_scalar(hint, value, where)


def _read_annotated(inner: Any, rule: Any, value: Any, where: str) -> Any:
    if isinstance(rule, OneKindOf):
        return rule.read(value, where)
    read = _read(inner, value, where)
    problem = rule.problem(read)
    if problem is not None:
        raise ConfigError(f"{where} is {value!r}; {problem}")
    return read


def _read_scalar(hint: type, value: Any, where: str) -> Any:
    if isinstance(value, int | float):
        _check_number(value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        _check_text(value, where)
    if get_origin(hint) is Mapping and isinstance(value, Mapping):
        return value
    if type(value) is not hint:
        wanted = _NAMES.get(hint, "a table")
        raise ConfigError(f"{where}: expected {wanted}, found {_kind(value)} ({value!r})")
    return value


def _check_number(value: float, where: str) -> None:
    """No number of ours is so large; further on it would be an overflow, or no number at all."""
    if isinstance(value, float) and not isfinite(value):
        raise ConfigError(f"{where}: {value} is not a number that can be used")
    if abs(value) >= LARGEST:
        raise ConfigError(f"{where}: the number is too large: less than {LARGEST:g} is expected")


def _check_text(value: str, where: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where}: {value!r} holds half a character") from None


_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a table"
    return _NAMES.get(type(value), "a list" if isinstance(value, list) else type(value).__name__)


def _suggestion(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
