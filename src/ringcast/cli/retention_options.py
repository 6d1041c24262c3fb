"""The options that say how long a journal keeps what it holds, the same for every
command that has them."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from ringcast.errors import ConfigError
from ringcast.journal.retention import Retention

KeepFor = Annotated[str | None, typer.Option(
    metavar="TIME", help="Remove what was delivered longer ago: a number with s, m, h or d, e.g. 90m or 7d.")]
KeepBytes = Annotated[str | None, typer.Option(
    metavar="SIZE", help="Remove the oldest while the journal is larger: a number of bytes, or with K, M, G or T, e.g. 20G.")]
KeepUntilCommitted = Annotated[list[str] | None, typer.Option(
    metavar="NAME", help="Remove nothing that the stream with this subscriptionName has not committed, whatever the limits say; "
                         "without limits, remove all that was. Repeat for more streams.")]

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def retention_of(keep_for: str | None, keep_bytes: str | None, names: Sequence[str] | None) -> Retention:
    """What the three options say together; ConfigError for what they cannot mean."""
    seconds = None if keep_for is None else quantity("--keep-for", keep_for, SECONDS)
    size = None if keep_bytes is None else quantity("--keep-bytes", keep_bytes, BYTES)
    return Retention(None if seconds is None else seconds * 10**9, size, tuple(names or ()))


def quantity(option: str, text: str, units: Mapping[str, int]) -> int:
    """A whole number with its unit, in the smallest one."""
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]?)", text.strip())
    unit = next((unit for unit in units if match and unit.lower() == match[2].lower()), None)
    if match is None or unit is None or int(match[1]) < 1:
        known = ", ".join(name for name in units if name)
        raise ConfigError(f"{option} must be a whole number from 1 with a unit ({known}), not {text!r}")
    return int(match[1]) * units[unit]
