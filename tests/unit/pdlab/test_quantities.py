"""Quantities as people write them: what is read, what is refused and how, and lists."""

from collections.abc import Callable

import pytest

from pdcore.errors import ConfigError
from pdlab.quantities import (
    format_bits_per_s,
    format_bytes,
    format_seconds,
    parse_bits_per_s,
    parse_bytes,
    parse_list,
    parse_seconds,
    parse_share,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_seconds, "50ms", 0.05),
        (parse_seconds, "35ms", 0.035),
        (parse_seconds, "1.5s", 1.5),
        (parse_seconds, "200 us", 0.0002),
        (parse_seconds, "0", 0.0),
        (parse_bits_per_s, "1gbit", 1e9),
        (parse_bits_per_s, "2.5Gbit", 2.5e9),
        (parse_bits_per_s, "100mbit", 1e8),
        (parse_bytes, "360KiB", 360 * 1024),
        (parse_bytes, "2MiB", 2 * 1024**2),
        (parse_bytes, "1MB", 1_000_000),
        (parse_bytes, "0.5KiB", 512),
        (parse_share, "0.01%", 0.0001),
        (parse_share, "0.5", 0.5),
        (parse_share, "100%", 1.0),
    ],
)
def test_reads(parse: Callable[[str], float], text: str, value: float) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (parse_seconds, "50", "has no unit: a time is in ns, us, ms, s, such as 50ms"),
        (parse_seconds, "-1ms", "'-1ms' is not a time"),
        (parse_seconds, "", "'' is not a time"),
        (parse_seconds, "nan", "'nan' is not a time"),
        (parse_seconds, "5gbit", "has the unit 'gbit': a time is in"),
        (parse_bits_per_s, "1GB", "has the unit 'GB': a rate is in"),
        (parse_bytes, "0.3B", "not a whole number of bytes"),
        (parse_share, "101%", "at most 100%"),
        (parse_share, "few", "'few' is not a share"),
    ],
)
def test_refuses(parse: Callable[[str], float], text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match="\\A.*" + reason.replace("%", "\\%")):
        parse(text)


def test_a_list_takes_the_unit_that_follows() -> None:
    assert parse_list("0,1,10,50ms", parse_seconds) == [0.0, 0.001, 0.01, 0.05]
    assert parse_list("500us, 1,2ms", parse_seconds) == [0.0005, 0.001, 0.002]
    assert parse_list("12KiB,64KiB,2MiB", parse_bytes) == [12288, 65536, 2097152]


def test_a_list_with_nothing_between_commas_is_refused() -> None:
    with pytest.raises(ConfigError, match="'' is not a time"):
        parse_list("1ms,,2ms", parse_seconds)


def test_formats() -> None:
    assert format_seconds(0.0502) == "50.2 ms"
    assert format_seconds(0) == "0 ms"
    assert format_bits_per_s(965.4e6) == "965.4 Mbit/s"
    assert format_bytes(2**20 * 3) == "3 MiB"
