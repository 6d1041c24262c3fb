"""The options of a read, in Spark's way: text by name, names in any case, wrong ones
refused before anything is read."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec

from ringcast.errors import ConfigError
from ringcast.journal.offsets import Offset, canonical, digest_of
from ringcast.journal.subscriptions import subscription_name
from ringcast.paths import local_path
from ringcast.spark.filters import EPOCH, microseconds
from ringcast.units import parse_duration

_BOTH = ("path", "startingOffsets", "startingTimestamp", "senders", "failOnDataLoss",
         "minPartitions", "maxRecordsPerPartition",
         "includeHeaders")
BATCH_OPTIONS = (*_BOTH, "endingOffsets", "endingTimestamp", "filterPushdown")
STREAM_OPTIONS = (*_BOTH, "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
                  "subscriptionName")
LOAD_OPTIONS = tuple(dict.fromkeys((*BATCH_OPTIONS, *STREAM_OPTIONS)))  # it may become either

EARLIEST, LATEST = "earliest", "latest"


class Options:
    """The options of one read, checked: ConfigError for an unknown one or a value
    outside its range."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...],
                 what: str = "a read") -> None:
        spelled = {name.lower(): name for name in given}
        if "paths" in spelled:
            raise ConfigError("load takes one DIRECTORY: a journal, or a folder of journals of one "
                              "group; load others by themselves and join them with union.")
        if {"provider", "location"} <= spelled.keys():
            raise ConfigError("Spark forgets the options of a table of its catalog, so that ringcast "
                              "could not read it: use CREATE TEMPORARY VIEW ... USING ringcast "
                              "OPTIONS (path 'DIRECTORY').")
        self._given = chosen(given, known, what)
        if not self._given.get("path"):
            raise ConfigError('Name the journal: .format("ringcast").load(DIRECTORY).')
        self.path = local_path(self._given["path"]).absolute()
        self.fail_on_data_loss = flag(self._given, "failOnDataLoss", True)
        self.filter_pushdown = flag(self._given, "filterPushdown", False)
        self.include_headers = flag(self._given, "includeHeaders", False)
        self.max_offsets_per_trigger = self._count("maxOffsetsPerTrigger")
        self.min_offsets_per_trigger = self._count("minOffsetsPerTrigger")
        self.max_trigger_delay = self._delay()
        self.min_partitions = self._count("minPartitions")
        self.max_records_per_partition = self._count("maxRecordsPerPartition")
        self.senders = self._senders()
        self.subscription = self._subscription()
        self.starting_offsets = self._offsets("startingOffsets", EARLIEST)
        self.ending_offsets = self._offsets("endingOffsets", LATEST)
        self.starting_timestamp = self._moment("startingTimestamp", "startingOffsets")
        self.ending_timestamp = self._moment("endingTimestamp", "endingOffsets")

    def wants(self, sender: str) -> bool:
        """Whether the option `senders` names this sender, by name or as
        name#incarnation."""
        return self.senders is None or sender in self.senders or sender.rpartition("#")[0] in self.senders

    def unknown_senders(self, known: Iterable[str]) -> list[str]:
        """The wanted senders of which none is known, sorted."""
        named = {name for sender in known for name in (sender, sender.rpartition("#")[0])}
        return sorted((self.senders or frozenset()) - named)

    def _delay(self) -> float:
        """How many seconds a batch may wait for minOffsetsPerTrigger messages."""
        least, most, text = self.min_offsets_per_trigger, self.max_offsets_per_trigger, self._given.get("maxTriggerDelay")
        if least is not None and most is not None and least > most:
            raise ConfigError(f"minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger {most}: the least may not be above the most.")
        if least is None and text is not None:
            raise ConfigError("maxTriggerDelay is how long a batch waits for minOffsetsPerTrigger messages: give that too.")
        given = text or "15m"
        # As Spark reads times in options: a number without a unit is milliseconds.
        delay = parse_duration(f"{given}ms" if given.strip().isdecimal() else given)
        if delay is None:
            raise ConfigError("maxTriggerDelay must be a whole number with a unit (us, ms, s, m, h "
                              f"or d), like 15m, not {text!r}.")
        return delay / 1e9

    def _count(self, name: str) -> int | None:
        value = self._given.get(name)
        if value is None:
            return None
        if not value.isdecimal() or int(value) < 1:
            raise ConfigError(f"{name} must be a whole number from 1, not {value!r}.")
        return int(value)

    def _senders(self) -> frozenset[str] | None:
        value = self._given.get("senders")
        if value is None:
            return None
        names = frozenset(name.strip() for name in value.split(","))
        if "" in names:
            raise ConfigError(f"senders must be names with commas between, each as NAME or NAME#INCARNATION, not {value!r}.")
        return names

    def _subscription(self) -> str | None:
        value = self._given.get("subscriptionName")
        return None if value is None else subscription_name(value)

    def _offsets(self, name: str, default: str) -> str | Offset:
        value = self._given.get(name, default)
        if value in (EARLIEST, LATEST):
            return value
        try:
            digest = digest_of(msgspec.json.decode(value, type=dict[str, Any]))
            return canonical(msgspec.convert(digest, dict[str, Annotated[int, msgspec.Meta(ge=0)]]))
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f'{name} must be earliest, latest or a JSON digest like {{"A#0123456789abcdef": 5}}, not {value!r}.'
            ) from error

    def _moment(self, name: str, other: str) -> int | None:
        """A time in microseconds since 1970."""
        value = self._given.get(name)
        if value is None:
            return None
        if other in self._given:
            raise ConfigError(f"{name} and {other} say the same thing twice: give one of them.")
        try:
            if value.isdecimal():
                return microseconds(EPOCH + timedelta(milliseconds=int(value)))
            moment = datetime.fromisoformat(value)
            return microseconds(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
        except (ValueError, OverflowError) as error:
            raise ConfigError(f"{name} must be milliseconds since 1970, or a time like 2026-11-21T12:00:00Z (UTC unless it says "
                              f"otherwise), not {value!r}.") from error


def chosen(given: Mapping[str, str], known: tuple[str, ...], what: str,
           sparks: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the options as we spell them; ConfigError for one that `what` does not
    know.

    Spark hands over options of its own with ours. It marks most by two underscores;
    `sparks` names others, in lower case. They are left out.
    """
    names = {name.lower(): name for name in known}
    ours = {name: value for name, value in given.items()
            if not name.startswith("__") and name.lower() not in sparks}
    for name in ours:
        if name.lower() not in names:
            spelled = next((other for other in LOAD_OPTIONS if other.lower() == name.lower()), name)
            raise ConfigError(f"ringcast has no option {spelled!r} for {what}; it knows "
                              f"{', '.join(sorted(known))}.")
    return {names[name.lower()]: value for name, value in ours.items()}


@contextmanager
def plainly() -> Iterator[None]:
    """Have Spark tell a mistake in the options as our sentence alone, without a Python
    stack.

    Spark asks for readers and writers in processes of its own. Such a process ends with
    its first error, so that what is set here holds for this error only.
    """
    try:
        yield
    except ConfigError:
        if "pyspark.worker_util" in sys.modules:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    """One option that is true or false, by its name in any case; ConfigError for any
    other value."""
    value = next((value for key, value in given.items() if key.lower() == name.lower()),
                 str(default)).lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{name} must be true or false, not {value!r}.")
    return value == "true"
