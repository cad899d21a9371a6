"""A table becomes a dataclass, or an error that names the key and what would be right."""

from dataclasses import dataclass, field
from enum import StrEnum

import pytest

from pdcore.errors import ConfigError
from pdcore.typed_table import merged, read_table


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Inner:
    size: int
    colour: Colour = Colour.RED


@dataclass(frozen=True, slots=True)
class Outer:
    name: str
    ratio: float = 0.5
    on: bool = False
    limit: int | None = 3
    inner: Inner = field(default_factory=lambda: Inner(1))
    many: tuple[Inner, ...] = ()


def test_reads_every_kind_of_field() -> None:
    table = {
        "name": "a",
        "ratio": 2,
        "on": True,
        "limit": 7,
        "inner": {"size": 4, "colour": "blue"},
        "many": [{"size": 5}, {"size": 6}],
    }
    expected = Outer("a", 2.0, True, 7, Inner(4, Colour.BLUE), (Inner(5), Inner(6)))
    assert read_table(Outer, table, "file") == expected


def test_whole_number_for_a_float_becomes_a_float() -> None:
    assert type(read_table(Outer, {"name": "a", "ratio": 2}, "file").ratio) is float


def test_none_is_kept_where_allowed() -> None:
    assert read_table(Outer, {"name": "a", "limit": None}, "file").limit is None


def test_missing_keys_take_defaults() -> None:
    assert read_table(Outer, {"name": "a"}, "file") == Outer("a")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "file: key 'name' is missing"),
        ([], "file: expected a table, found a list"),
        ({"nmae": "a"}, "file: unknown key 'nmae'; did you mean 'name'?"),
        ({"zzz": 1}, "file: unknown key 'zzz'; known: name, ratio, on, limit, inner, many"),
        ({"name": 1}, "file: name: expected a string, found a whole number (1)"),
        ({"name": "a", "on": 1}, "file: on: expected true or false, found a whole number (1)"),
        ({"name": "a", "ratio": True}, "file: ratio: expected a number, found true or false"),
        ({"name": "a", "limit": 1.5}, "file: limit: expected a whole number, found a number"),
        ({"name": "a", "limit": True}, "file: limit: expected a whole number, found true or false"),
        ({"name": "a", "inner": 3}, "file: inner: expected a table, found a whole number"),
        ({"name": "a", "inner": {}}, "file: inner: key 'size' is missing"),
        ({"name": "a", "many": {}}, "file: many: expected a list, found a table"),
        ({"name": "a", "many": [{"size": 1}, {"size": "x"}]}, "file: many[1]: size: expected"),
        ({"name": "a", "ratio": float("nan")}, "file: ratio: nan is not a number that can be used"),
        ({"name": "a", "ratio": float("inf")}, "file: ratio: inf is not a number that can be used"),
        ({"name": "a", "ratio": 10**400}, "file: ratio: the number is too large"),
        ({"name": "a", "limit": -(10**30)}, "file: limit: the number is too large"),
        ({"name": "\ud800"}, "file: name: '\\ud800' holds half a character"),
        (
            {"name": "a", "inner": {"size": 1, "colour": "green"}},
            "file: inner: colour is 'green'; one of red, blue",
        ),
    ],
)
def test_error_names_key_and_remedy(table: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_table(Outer, table, "file")
    assert str(caught.value).startswith(message)


def test_merged_goes_table_by_table_and_changes_neither() -> None:
    base = {"a": {"x": 1, "y": 2}, "b": 3}
    over = {"a": {"y": 5}, "b": {"z": 1}}
    assert merged(base, over) == {"a": {"x": 1, "y": 5}, "b": {"z": 1}}
    assert base == {"a": {"x": 1, "y": 2}, "b": 3}
    assert over == {"a": {"y": 5}, "b": {"z": 1}}
