"""The options for the retention of a journal, which several commands have."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ringcast.errors import ConfigError
from ringcast.units import parse_duration, parse_size

if TYPE_CHECKING:
    from ringcast.journal.retention import Retention

KeepFor = Annotated[str | None, typer.Option(
    metavar="TIME", help="Remove messages that were delivered longer ago than this: a number with "
                         "s, m, h or d, e.g. 90m or 7d.")]
KeepBytes = Annotated[str | None, typer.Option(
    metavar="SIZE", help="Remove the oldest messages while the journal is larger than this: a "
                         "number of bytes, or with K, M, G or T, e.g. 20G.")]
KeepUntilCommitted = Annotated[list[str] | None, typer.Option(
    metavar="NAME", help="Keep all messages that the stream with this subscriptionName has not "
                         "committed, regardless of the limits. Without limits, remove all others. "
                         "Repeat for more streams.")]


def retention_of(keep_for: str | None, keep_bytes: str | None,
                 names: Sequence[str] | None) -> "Retention":
    """Return the retention of the three options. Raises ConfigError for impossible
    values."""
    from ringcast.journal.retention import Retention

    return Retention(_quantity("--keep-for", keep_for, parse_duration, "s, m, h, d"),
                     _quantity("--keep-bytes", keep_bytes, parse_size, "K, M, G, T"),
                     tuple(names or ()))


def _quantity(option: str, text: str | None, parse: Callable[[str], int | None],
              units: str) -> int | None:
    """Return the value of an option that has a unit, in the smallest one."""
    if text is None:
        return None
    if not (value := parse(text)):
        raise ConfigError(f"{option} must be a whole number from 1 with a unit ({units}), "
                          f"not {text!r}")
    return value
