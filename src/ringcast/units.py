"""Numbers with a unit, as people write them in options and scripts: 500ms, 7d, 20G; and
as sentences show them."""

import re
from collections.abc import Mapping
from fractions import Fraction

NANOSECONDS = {"us": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "min": 60 * 10**9,
               "h": 3_600 * 10**9, "d": 86_400 * 10**9}
BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]*)", re.ASCII)


def parse_count(text: str) -> int | None:
    """Return a whole number of up to 19 digits, or None if `text` is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else None


def parse_duration(text: str, *, fractions: bool = False) -> int | None:
    """Return a duration in nanoseconds, or None if `text` is none. `fractions` allows
    numbers such as 1.5."""
    return _parse(text, NANOSECONDS, fractions)


def parse_size(text: str) -> int | None:
    """Return a size in bytes, or None if `text` is none. K, M, G and T are powers of
    1024."""
    return _parse(text, BYTES, fractions=False)


def counted(number: int, noun: str) -> str:
    """Return a number of things in words: 1 message, 2,000 messages."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _parse(text: str, units: Mapping[str, int], fractions: bool) -> int | None:
    """Return a number with one of `units` in the smallest one. Spaces around it do not
    matter, nor does whether the unit is in capitals."""
    found = _QUANTITY.fullmatch(text.strip().lower())
    if found is None or found[2] not in units or ("." in found[1] and not fractions):
        return None
    return int(Fraction(found[1]) * units[found[2]])
