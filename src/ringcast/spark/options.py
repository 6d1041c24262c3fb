"""The options of reads and writes. Spark passes them as text, by names in any case. A
wrong option is refused before anything is read or written."""

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
from ringcast.units import parse_count, parse_duration

_READ_OPTIONS = ("path", "startingOffsets", "startingTimestamp", "senders", "failOnDataLoss",
                 "minPartitions", "maxRecordsPerPartition", "includeHeaders")
BATCH_OPTIONS = (*_READ_OPTIONS, "endingOffsets", "endingTimestamp", "filterPushdown")
STREAM_OPTIONS = (*_READ_OPTIONS, "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
                  "maxTriggerDelay", "subscriptionName")
# load() does not know yet whether it begins a batch or a stream.
LOAD_OPTIONS = tuple(dict.fromkeys((*BATCH_OPTIONS, *STREAM_OPTIONS)))

EARLIEST, LATEST = "earliest", "latest"


class Options:
    """The options of one operation, by their names as the documents spell them.

    Raises ConfigError for an option that is not in `known`, or without a path.
    `operation` is the operation in words, `remedy` says how to pass the path. Options
    that Spark adds are left out: it marks most of them by two underscores, and
    `added_by_spark` has the others.
    """

    added_by_spark: frozenset[str] = frozenset()

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...], operation: str,
                 remedy: str) -> None:
        names = {name.lower(): name for name in known}
        self._given: dict[str, str] = {}
        for name, value in given.items():
            if name.startswith("__") or name.lower() in self.added_by_spark:
                continue
            if name.lower() not in names:
                spelled = {other.lower(): other for other in LOAD_OPTIONS}.get(name.lower(), name)
                raise ConfigError(f"ringcast has no option {spelled!r} for {operation}; it knows "
                                  f"{', '.join(sorted(known))}.")
            self._given[names[name.lower()]] = value
        if not self._given.get("path"):
            raise ConfigError(remedy)
        self.path = local_path(self._given["path"]).absolute()


class ReadOptions(Options):
    """The options of one read, checked. Raises ConfigError for an unknown option or a
    value outside its range."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...],
                 operation: str = "a read") -> None:
        spelled = {name.lower() for name in given}
        if "paths" in spelled:
            raise ConfigError("load takes one DIRECTORY: a journal, or a folder of journals of one "
                              "group; load others by themselves and join them with union.")
        if {"provider", "location"} <= spelled:
            raise ConfigError("Spark does not keep the options of a table in its catalog, so "
                              "ringcast could not read it: use CREATE TEMPORARY VIEW ... USING "
                              "ringcast OPTIONS (path 'DIRECTORY').")
        super().__init__(given, known, operation,
                         'Name the journal: .format("ringcast").load(DIRECTORY).')
        self.fail_on_data_loss = flag(self._given, "failOnDataLoss", True)
        self.filter_pushdown = flag(self._given, "filterPushdown", False)
        self.include_headers = flag(self._given, "includeHeaders", False)
        self.max_offsets_per_trigger = self._count("maxOffsetsPerTrigger")
        self.min_offsets_per_trigger = self._count("minOffsetsPerTrigger")
        self.max_trigger_delay = self._trigger_delay()      # seconds
        self.min_partitions = self._count("minPartitions")
        self.max_records_per_partition = self._count("maxRecordsPerPartition")
        self.senders = self._senders()
        self.subscription = self._subscription()
        self.starting_offsets = self._offsets("startingOffsets", EARLIEST)
        self.ending_offsets = self._offsets("endingOffsets", LATEST)
        self.starting_timestamp = self._timestamp("startingTimestamp", "startingOffsets")
        self.ending_timestamp = self._timestamp("endingTimestamp", "endingOffsets")

    def wants(self, sender: str) -> bool:
        """Return whether this sender is to be read: the option `senders` names its
        member or its incarnation, or is not given."""
        return (self.senders is None or sender in self.senders
                or sender.rpartition("#")[0] in self.senders)

    def unknown_senders(self, known: Iterable[str]) -> list[str]:
        """Return, sorted, the entries of the option `senders` that match no known
        sender."""
        names = {name for sender in known for name in (sender, sender.rpartition("#")[0])}
        return sorted((self.senders or frozenset()) - names)

    def _trigger_delay(self) -> float:
        """Return how many seconds a batch may wait for minOffsetsPerTrigger
        messages."""
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        text = self._given.get("maxTriggerDelay")
        if least is not None and most is not None and least > most:
            raise ConfigError(f"minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger {most}: "
                              "the least may not be above the most.")
        if least is None and text is not None:
            raise ConfigError("maxTriggerDelay is how long a batch waits for minOffsetsPerTrigger "
                              "messages: give that too.")
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
        if not (count := parse_count(value)):
            raise ConfigError(f"{name} must be a whole number from 1, not {value!r}.")
        return count

    def _senders(self) -> frozenset[str] | None:
        value = self._given.get("senders")
        if value is None:
            return None
        names = frozenset(name.strip() for name in value.split(","))
        if "" in names:
            raise ConfigError("senders must be names with commas between, each as NAME or "
                              f"NAME#INCARNATION, not {value!r}.")
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
            raise ConfigError(f"{name} must be earliest, latest or a JSON digest like "
                              f'{{"A#0123456789abcdef": 5}}, not {value!r}.') from error

    def _timestamp(self, name: str, other: str) -> int | None:
        """Return an option that is a time, in microseconds since 1970. Raises
        ConfigError if the option `other` is given as well."""
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
            raise ConfigError(f"{name} must be milliseconds since 1970, or a time like "
                              "2026-11-21T12:00:00Z (UTC unless it says otherwise), "
                              f"not {value!r}.") from error


@contextmanager
def without_traceback() -> Iterator[None]:
    """Make Spark report a ConfigError as its sentence alone, without a Python stack.

    Spark asks for readers and writers in processes of its own. Such a process ends with
    its first error, so the variable that is set here holds for this error only.
    """
    try:
        yield
    except ConfigError:
        if "pyspark.worker_util" in sys.modules:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    """Return an option that is true or false. Raises ConfigError for another value."""
    value = given.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{name} must be true or false, not {value!r}.")
    return value == "true"
