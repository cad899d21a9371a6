"""Quantities as people say them, for logs and verdicts: 6.5 s, 360 KiB, 0.96 Gbit/s."""

_BINARY = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def time(seconds: float) -> str:
    return f"{_figures(seconds)} s" if seconds >= 0.0995 else f"{_figures(seconds * 1e3)} ms"


def size(nbytes: float) -> str:
    for unit, name in _BINARY:
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes:.0f} bytes"


def rate(bytes_per_s: float) -> str:
    bits = 8 * bytes_per_s
    return f"{_figures(bits / 1e9)} Gbit/s" if bits >= 9.95e7 else f"{_figures(bits / 1e6)} Mbit/s"


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def _figures(value: float) -> str:
    """Two that count, without an exponent."""
    return f"{float(f'{value:.2g}'):g}"
