"""Quantities as people say them."""

import pytest

from kvtransfer import in_words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(6.51, "6.5 s"), (0.1, "0.1 s"), (0.0504, "50 ms"), (0.00031, "0.31 ms"), (1234.0, "1200 s")],
)
def test_time(seconds: float, said: str) -> None:
    assert in_words.time(seconds) == said


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [(12, "12 bytes"), (360 * 1024, "360 KiB"), (3 * 2**20 // 2, "1.5 MiB"), (2**31, "2 GiB")],
)
def test_size(nbytes: int, said: str) -> None:
    assert in_words.size(nbytes) == said


def test_rate_and_share() -> None:
    assert in_words.rate(120e6) == "0.96 Gbit/s"
    assert in_words.rate(1e6) == "8 Mbit/s"
    assert in_words.share(1.5, 2.0) == "75 %"
    assert in_words.share(0.0, 0.0) == "0 %"
