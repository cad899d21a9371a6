"""Times, rates, sizes and shares as people write them, and lists of them: "50ms", "0,1,10ms".

All parsers raise ConfigError with the text, and what would be right. Numbers are plain decimals,
never negative. In a list an element without a unit has that of the next one with a unit: "0,1,10ms"
is 0, 1 and 10 milliseconds.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TypeAlias, TypeVar

from pdcore.errors import ConfigError

T = TypeVar("T")

Units: TypeAlias = Mapping[str, Decimal]

SECONDS: Units = {
    name: Decimal(f"1e{power}") for name, power in (("ns", -9), ("us", -6), ("ms", -3), ("s", 0))
}
BITS_PER_S: Units = {
    name: Decimal(f"1e{power}")
    for name, power in (("bit", 0), ("kbit", 3), ("mbit", 6), ("gbit", 9))
}
BYTES: Units = {
    "B": Decimal(1),
    **{f"{prefix}B": Decimal(1000) ** power for power, prefix in enumerate("kMG", start=1)},
    **{f"{prefix}iB": Decimal(1024) ** power for power, prefix in enumerate("KMG", start=1)},
}
SHARES: Units = {"%": Decimal("0.01")}

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z%]*)")


def parse_seconds(text: str) -> float:
    """ "50ms", "1.5s", "0". A number other than 0 needs its unit."""
    return float(_parse(text, SECONDS, "a time", "50ms"))


def parse_bits_per_s(text: str) -> float:
    """ "1gbit", "100mbit": bits per second, in powers of ten."""
    return float(_parse(text, BITS_PER_S, "a rate", "1gbit"))


def parse_bytes(text: str) -> int:
    """ "360KiB", "2MiB", "1MB": whole bytes."""
    num_bytes = _parse(text, BYTES, "a size", "360KiB")
    if num_bytes != int(num_bytes):
        raise ConfigError(f"{text!r} is not a whole number of bytes")
    return int(num_bytes)


def parse_share(text: str) -> float:
    """ "0.01%" or "0.0001": a part of all, 0 to 1."""
    share = float(_parse(text, SHARES, "a share", "0.1%", unit_needed=False))
    if share > 1:
        raise ConfigError(f"{text!r} is more than all: a share is at most 100%")
    return share


def parse_list(text: str, parse: Callable[[str], T]) -> list[T]:
    """The elements of "0,1,10ms", each read by ``parse``; the last unit serves those before it."""
    values: list[T] = []
    unit = ""
    for element in reversed([part.strip() for part in text.split(",")]):
        match = _QUANTITY.fullmatch(element)
        if match and not match[2]:
            element = element + unit  # noqa: PLW2901
        elif match:
            unit = match[2]
        values.append(parse(element))
    return values[::-1]


def format_seconds(seconds: float) -> str:
    """0 is "0 ms": as people write a round trip of 0."""
    if seconds == 0:
        return "0 ms"
    return _format(seconds, SECONDS, {"s": "s", "ms": "ms", "us": "us", "ns": "ns"})


def format_bits_per_s(bits_per_s: float) -> str:
    names = {"gbit": "Gbit/s", "mbit": "Mbit/s", "kbit": "kbit/s", "bit": "bit/s"}
    return _format(bits_per_s, BITS_PER_S, names)


def format_bytes(num_bytes: float) -> str:
    return _format(num_bytes, BYTES, {"GiB": "GiB", "MiB": "MiB", "KiB": "KiB", "B": "B"})


def _format(value: float, units: Units, names: Mapping[str, str]) -> str:
    """In the largest unit, of ``names`` in falling order, that leaves at least 1; 4 digits."""
    fitting = (unit for unit in names if value >= units[unit])
    unit = next(fitting, list(names)[-1])
    return f"{value / float(units[unit]):.4g} {names[unit]}"


def _parse(
    text: str, units: Units, what: str, example: str, *, unit_needed: bool = True
) -> Decimal:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not {what}, such as {example}")
    number, unit = Decimal(match[1]), match[2]
    if not unit and (number == 0 or not unit_needed):
        return number
    for name, factor in units.items():
        if unit.lower() == name.lower():
            return number * factor
    problem = f"has the unit {unit!r}" if unit else "has no unit"
    raise ConfigError(f"{text!r} {problem}: {what} is in {', '.join(units)}, such as {example}")
