"""Quantities as people say them, for logs and verdicts: 6.5 s, 360 KiB, 0.96 Gbit/s.

``digits``: how many of a figure count.
"""

from functools import partial

_BINARY = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def time(seconds: float, digits: int = 2) -> str:
    whole = _figures(seconds, digits)
    return f"{whole:g} s" if whole >= 0.1 else f"{_figures(seconds * 1e3, digits):g} ms"


def size(nbytes: float) -> str:
    for unit, name in _BINARY:
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes:.0f} bytes"


def rate(bytes_per_s: float, digits: int = 2) -> str:
    gbits = _figures(8e-9 * bytes_per_s, digits)
    return (
        f"{gbits:g} Gbit/s" if gbits >= 0.1 else f"{_figures(8e-6 * bytes_per_s, digits):g} Mbit/s"
    )


exact_time = partial(time, digits=3)
exact_rate = partial(rate, digits=3)


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _figures(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
