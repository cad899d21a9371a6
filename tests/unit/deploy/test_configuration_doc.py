"""docs/configuration.md against the dataclasses of pdcore.settings: same keys, order, defaults."""

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from kvtransfer.limits import MODES
from pdcore.cluster import NodeRole
from pdcore.discovery import DISCOVERIES
from pdcore.settings import ClusterSettings, NodeSettings
from pdengine.attention import BACKENDS
from router.placement import POLICIES

DOC = (Path(__file__).parents[3] / "docs/configuration.md").read_text()


def documented() -> Mapping[str, Mapping[str, tuple[str, str, str]]]:
    """{section: {setting: (default, unit, meaning)}} of the document's tables."""
    sections = {}
    for section in DOC.split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|([^|]*)\|([^|]*)\|$", body, re.MULTILINE)
        cells = {name: tuple(text.strip() for text in rest) for name, *rest in rows}
        sections[heading.strip().strip("`[]").lower()] = cells
    return sections


def classes() -> Mapping[str, type]:
    """{section: dataclass}, as the TOML file nests them."""
    hints = get_type_hints(ClusterSettings)
    tables = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    return {"top level": ClusterSettings, **tables, "nodes": NodeSettings}


def default_text(field: Field[Any]) -> str:
    if field.default is MISSING:
        return "required"
    return "not set" if field.default is None else f"`{json.dumps(field.default)}`"


def plain_fields(cls: type) -> list[Field[Any]]:
    """Fields that are a value, not a table of their own."""
    hints = get_type_hints(cls)
    nested = {name for name, hint in hints.items() if is_dataclass(hint)} | {"nodes"}
    return [field for field in fields(cls) if field.name not in nested]


def test_every_table_of_the_file_has_a_section() -> None:
    assert list(documented()) == [*classes(), "environment"]


@pytest.mark.parametrize("section", classes())
def test_settings_and_defaults_are_those_of_the_code(section: str) -> None:
    in_code = [(field.name, default_text(field)) for field in plain_fields(classes()[section])]
    in_docs = [(name, cells[0]) for name, cells in documented()[section].items()]
    assert in_docs == in_code


@pytest.mark.parametrize("section", classes())
def test_units_are_those_of_the_names(section: str) -> None:
    units = {"_s": "seconds", "_bytes": "bytes", "_tokens": "tokens", "_dns": "host:port"}
    for name, (_, unit, meaning) in documented()[section].items():
        assert meaning
        for suffix, expected in units.items():
            if name.endswith(suffix):
                assert unit == expected


@pytest.mark.parametrize(
    ("section", "setting", "choices"),
    [
        ("transfer", "mode", MODES),
        ("router", "placement", POLICIES),
        ("engine", "attention", BACKENDS),
        ("discovery", "kind", DISCOVERIES),
        ("nodes", "role", tuple(NodeRole)),
    ],
)
def test_choices_are_all_named(section: str, setting: str, choices: Any) -> None:
    meaning = documented()[section][setting][2]
    assert set(choices) <= set(re.findall(r"`(\w+)`", meaning))
