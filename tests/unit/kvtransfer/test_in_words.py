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


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (in_words.exact_rate(0.19346e9 / 8), "0.193 Gbit/s"),
        (in_words.exact_rate(8.014e6 / 8), "8.01 Mbit/s"),
        (in_words.exact_rate(99.94e6 / 8), "99.9 Mbit/s"),
        (in_words.exact_time(0.10063), "0.101 s"),
        (in_words.exact_time(0.02468), "24.7 ms"),
        (in_words.exact_time(392.4), "392 s"),
        (in_words.time(0.0999), "0.1 s"),
    ],
)
def test_digits(said: str, words: str) -> None:
    assert said == words
