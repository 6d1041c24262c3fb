"""The Spark source: `spark.read.format("ringcast").load(DIR)` and
`spark.readStream.format("ringcast").load(DIR)`.

A journal is a table that grows. A batch read returns what is durable now. A stream
returns every durable message exactly once, if its sink is idempotent by batch. The
offset is a digest (see journal/offsets.py) and names the journals that its batch is
read from. So a batch that is replayed after a crash has exactly the same rows, with the
same views and times of delivery. `DIR` is a journal, or a folder of journals that
several recorders of one group write (see journal/merge.py). The driver and the workers
must see it under the same path.

The options; all are for batches and streams, unless marked:

- `startingOffsets`: where to begin. `earliest` (default, for streams too: the first run
  reads all of a journal), `latest` (streams only), or a JSON digest
  {"name#incarnation": seqno} of the last messages that are not read; a sender that it
  does not name is read from its first message.
- `endingOffsets` (batch): where to end. `latest` (default), or a JSON digest of the
  last messages that are read; a sender that it does not name is not read.
- `startingTimestamp`: where to begin, instead of startingOffsets: at each sender's
  first message that was sent at this time or later. Milliseconds since 1970, or
  ISO 8601 (UTC unless it names a zone). A stream does not wait for a time: one in the
  future is refused when it first runs. Senders that come later are read from their
  first message.
- `endingTimestamp` (batch): where to end, instead of endingOffsets: before each
  sender's first message that was sent at this time or later.
- `senders`: read these alone, names with commas between: NAME for all incarnations of a
  member, NAME#INCARNATION for one of them. A batch read fails if no journal has
  messages of one of them; a stream logs a warning and waits for it.
- `failOnDataLoss` (default true): fail if messages in the range were purged or never
  reached a recorder, or if the journal ends before the offset. With false such messages
  are skipped. It also decides about a stream's batch that runs again after the journal
  that it was read from is gone, with `view_id`, `delivered_at` or `headers` among its
  columns: true fails, false reads them from another journal. The other columns come
  from the sender and are the same in every journal, so without these three columns any
  journal will do.
- `maxOffsetsPerTrigger` (streams): the most messages in a batch. Senders with the
  smallest backlogs come first. Default: no limit.
- `minOffsetsPerTrigger` (streams): a batch starts only when this number of messages
  waits, or when `maxTriggerDelay` (default `15m`) has passed since the last batch. As
  with Kafka's source, the first batch of a run never waits, nor does any batch of
  `trigger(availableNow=True)`.
- `subscriptionName` (streams): write what the stream has committed into the journals
  under this name, for their retention (see journal/retention.py). Spark commits a batch
  when it plans the next one, so this lags by one batch.
- `minPartitions`, `maxRecordsPerPartition`: the least partitions of a batch, and the
  most messages in a partition. Default: partitions of at most 1,000,000 messages and
  192 MiB.
- `includeHeaders` (default false): add the column `headers array<struct<key string,
  value binary>>`, as Kafka's source does. Its keys are `journal`, the name of the
  journal's directory, and `recorder`, the member that recorded the row (empty if the
  journal does not know it). With several journals this is the journal that the row was
  read from.
- `filterPushdown` (batch, default false): pass the query's filters on sender, seqno,
  sent_at and delivered_at to the reader, which opens only segments that can have such
  rows. `spark.sql.python.filterPushdown.enabled` must be true as well, which
  `ringcast.spark.session` sets; else Spark filters the rows after they are read. Load
  the DataFrame anew for each query with filters: Spark 4.3 keeps the plan of the last
  query with a DataFrame, and a second query over it, with other filters, would silently
  get the rows of the first. That is why false is the default. `senders`, offsets and
  timestamps narrow a read too, and do not have this problem.

A schema given by the user is a projection: any of the columns, in any order, with their
own types. Without `payload` the payloads are not read from the disk. `select` alone
does not narrow what is read: Spark (4.3) does not tell a source written in Python which
columns a query uses.

A loaded DataFrame has what was durable when a query first planned it, because Spark
keeps that plan. Load it anew to see more.

A stream may start before its recorder. It waits until the journal exists, and then
reads it from its start. A batch read of a journal that does not exist is an error.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from time import monotonic, time

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ringcast.errors import ConfigError, JournalError
from ringcast.journal.manifest import Extent
from ringcast.journal.merge import Journals, read_copy
from ringcast.journal.offsets import (
    Copy,
    Offset,
    Position,
    Range,
    advance,
    canonical,
    copies_of,
    cut,
    digest_of,
    earliest,
    latest,
    losses,
    overtaken,
    position,
    ranges,
    refuse,
)
from ringcast.journal.reader import Span
from ringcast.journal.rows import RECORDER_COLUMNS, ROWS, WITH_HEADERS
from ringcast.journal.subscriptions import subscribe
from ringcast.logs import log
from ringcast.spark.filters import Bounds, sent_before
from ringcast.spark.options import (
    BATCH_OPTIONS,
    EARLIEST,
    LATEST,
    LOAD_OPTIONS,
    STREAM_OPTIONS,
    ReadOptions,
    without_traceback,
)
from ringcast.view import listed

PARTITION_ROWS = 1_000_000  # with far fewer, starting tasks costs more than reading (measured)
PARTITION_BYTES = 192 << 20
FUTURE = 60.0               # seconds by which a clock may be behind the one of startingTimestamp
# Fewer partitions than this are rounded up to a power of two: with three partitions and
# two cores, one core is idle while the last partition is read.
ROUNDED_PARTITIONS = 32

# Spark asks for filters in a process of its own, which has loaded this module. If
# Spark's filter pushdown is off, a reader that has the method pushFilters fails every
# read. So the reader has that method in this process alone.
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class Slice(InputPartition):
    """The messages that one task reads."""

    def __init__(self, path: Path, copies: list[Copy], segments: list[list[Span]]) -> None:
        self.path = path
        self.copies = copies
        self.segments = segments        # of each copy, so that a task need not search for them


class RingcastDataSource(DataSource):
    """The journals of a ringcast group as a table."""

    @classmethod
    def name(cls) -> str:
        return "ringcast"

    def schema(self) -> StructType:
        """Return the columns. Spark calls this in load(), so wrong options are reported
        there."""
        with without_traceback():
            options = ReadOptions(self.options, LOAD_OPTIONS)
            return from_arrow_schema(columns(options.include_headers))

    def reader(self, schema: StructType) -> "BatchReader":
        with without_traceback():
            options = ReadOptions(self.options, BATCH_OPTIONS, "a batch read")
            filters = options.filter_pushdown and _PUSHDOWN_WORKER in sys.modules
            return (FilteringReader if filters else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            with without_traceback():
                return StreamReader(ReadOptions(self.options, STREAM_OPTIONS, "a stream"), schema)
        except ConfigError as error:
            return FailingStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from ringcast.spark.sink import BatchWriter

        with without_traceback():
            return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from ringcast.spark.sink import StreamWriter

        with without_traceback():
            return StreamWriter(self.options, schema, overwrite)


class FailingStreamReader(DataSourceStreamReader):
    """The reader of a stream with wrong options: every call raises the ConfigError.

    If `streamReader` itself raised, PySpark would report an error of its own instead:
    at the end it stops the reader, although it never got one.
    """

    def __init__(self, error: ConfigError) -> None:
        self.error = error

    def initialOffset(self) -> Position:
        raise self.error

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        raise self.error

    def partitions(self, start: Position, end: Position) -> list[InputPartition]:
        raise self.error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self.error


class _SliceReader:
    """The common part of batches and streams: planning ranges, and reading a slice in a
    worker."""

    # Whether another journal may be read when the planned one cannot give a message.
    stand_in = True

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.projection = projection(schema, columns(options.include_headers))
        self.bounds = Bounds()

    def plan(self, journals: Journals, spans: list[Range], extents: Mapping[str, Extent],
             chosen: Mapping[str, Sequence[Copy]]) -> list[Slice]:
        """Plan the tasks for these ranges. Ranges that have copies in `chosen` are read
        from these journals again. Raises JournalError if a message is lost and
        failOnDataLoss is true."""
        spans = self.bounds.ranges(spans)
        strict = self.options.fail_on_data_loss
        if strict:
            self._refuse_losses(spans, extents)
        copies = journals.copies_again(spans, chosen, strict=strict, stand_in=self.stand_in)
        if strict:      # what was purged since `extents` has no copy; what goes later, tasks miss
            self._refuse_losses(spans, journals.extents({span.sender: span.last for span in spans}))
        copies = self.bounds.in_time(journals, copies)
        rows = _partition_rows(copies, _row_bytes(journals, copies), self.options)
        return [Slice(self.options.path, part,
                      [journals.named(copy.journal).spans(*copy[:3]) for copy in part])
                for part in cut(copies, rows)]

    def _refuse_losses(self, spans: list[Range], extents: Mapping[str, Extent]) -> None:
        refuse(losses(spans, extents),
               f"The journal {self.options.path} does not have all messages of this range")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Slice):        # Spark's own, for an empty plan
            return
        for copy, segments in zip(partition.copies, partition.segments, strict=True):
            yield from read_copy(partition.path, copy, self.projection, segments=segments,
                                 strict=self.options.fail_on_data_loss, stand_in=self.stand_in)

    def wanted(self, extents: Mapping[str, Extent]) -> dict[str, Extent]:
        """Return the extents of the senders that the user wants to read."""
        return {sender: extent for sender, extent in extents.items() if self.options.wants(sender)}

    def start(self, journals: Journals, extents: Mapping[str, Extent]) -> Offset:
        """Return the offset at which the user wants to begin."""
        if self.options.starting_timestamp is not None:
            return canonical(sent_before(journals, self.options.starting_timestamp, extents))
        start = self.options.starting_offsets
        if isinstance(start, dict):
            return start
        return earliest(extents) if start == EARLIEST else latest(extents)


class BatchReader(_SliceReader, DataSourceReader):
    """Reads what is durable when the job is planned, between two offsets."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.starting_offsets == LATEST:
            raise ConfigError("startingOffsets=latest reads nothing in a batch: use earliest, a "
                              "JSON digest, or a stream.")
        if options.ending_offsets == EARLIEST:
            raise ConfigError("endingOffsets=earliest reads nothing: use latest or a JSON digest.")

    def partitions(self) -> list[Slice]:
        journals = Journals(self.options.path)
        if not journals.journals:
            raise JournalError(f"There is no journal at {self.options.path}: check the name, or "
                               "start recording to it first.")
        there = journals.extents()
        if missing := self.options.unknown_senders(there):
            raise JournalError(f"{self.options.path} has no messages of {', '.join(missing)}, "
                               f"which the option senders names; it has those of {_few(there)}.")
        extents = self.wanted(there)
        start, end = self.start(journals, extents), self.end(journals, extents)
        if self.options.fail_on_data_loss:
            refuse(overtaken(start, journals.reach()),
                   f"startingOffsets is beyond the end of the journal {self.options.path}")
        return self.plan(journals, ranges(start, end, earliest(extents)), extents, {})

    def end(self, journals: Journals, extents: Mapping[str, Extent]) -> Offset:
        """Return the offset at which the user wants to end."""
        if self.options.ending_timestamp is not None:
            return canonical(sent_before(journals, self.options.ending_timestamp, extents))
        end = self.options.ending_offsets
        if isinstance(end, str):
            return latest(extents)
        return {name: seqno for name, seqno in end.items() if self.options.wants(name)}


class FilteringReader(BatchReader):
    """A BatchReader that takes the query's filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters, and return those that Spark must still apply."""
        return [each for each in filters if not self.bounds.narrow(each)]


class StreamReader(_SliceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what becomes durable, batch by batch."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: Offset | None = None      # where an AvailableNow run ends
        self._triggered = -inf                  # when the last batch began
        self._warned: set[str] = set()
        # A batch that runs again must have the same rows. Columns that come from the
        # sender are the same in every journal.
        self.stand_in = (not options.fail_on_data_loss
                         or set(RECORDER_COLUMNS).isdisjoint(self.projection.names))

    def initialOffset(self) -> Offset:
        moment = self.options.starting_timestamp
        if moment is not None and moment > (time() + FUTURE) * 1e6:
            raise ConfigError("startingTimestamp is in the future, and a stream begins with what "
                              "is there: start it then, or filter its rows by sent_at.")
        journals = Journals(self.options.path)
        return self.start(journals, self.wanted(journals.extents()))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit for latestOffset. Spark's limits are a least or a most, not
        both; where both are given, latestOffset applies the most itself."""
        least, most = self.options.min_offsets_per_trigger, self.options.max_offsets_per_trigger
        if least is not None:
            return ReadMinRows(least)
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        journals, begin = Journals(self.options.path), digest_of(start)
        if self.options.fail_on_data_loss:
            refuse(overtaken(begin, journals.reach()),
                   f"The stream has read further than the journal {self.options.path} goes")
        there = journals.extents(behind=begin)
        self._warn_if_waiting(journals, there)
        extents = self.wanted(there)
        target = latest(extents)
        if self._target is not None:
            target = {sender: min(target[sender], seqno) for sender, seqno in self._target.items()
                      if sender in target}
        floor = earliest(extents)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if isinstance(limit, ReadMinRows):
            if self._target is None and self._waits(limit.min_rows, begin, target, floor):
                return start
            most = self.options.max_offsets_per_trigger
        end = advance(begin, target, floor, most)
        if end == begin:
            return start
        # A single journal needs no name in the offset. But the first seqno of a new
        # sender must be there, in case it is purged before the batch runs.
        spans = [span for span in ranges(begin, end, floor)
                 if not journals.is_one or span.sender not in begin]
        return position(end, journals.copies(spans))

    def _waits(self, least: int, begin: Offset, target: Offset, floor: Offset) -> bool:
        """Return whether the batch should wait: fewer than `least` messages are there,
        and maxTriggerDelay has not passed since the last batch."""
        there = sum(span.last - span.first + 1
                    for span in ranges(begin, advance(begin, target, floor, None), floor))
        now = monotonic()
        if there < least and now - self._triggered < self.options.max_trigger_delay:
            return True
        self._triggered = now
        return False

    def _warn_if_waiting(self, journals: Journals, there: Mapping[str, Extent]) -> None:
        """Log, once, that the stream waits for a journal or for senders that may never
        come."""
        if not journals.journals:
            self._warn_once(f"There is no journal at {self.options.path} yet; the stream waits "
                            "for one.")
        elif there and (missing := self.options.unknown_senders(there)):
            self._warn_once(f"{self.options.path} has no messages of {', '.join(missing)} yet, "
                            f"which the option senders names; it has those of {_few(there)}, and "
                            "the stream waits for the others.")

    def _warn_once(self, sentence: str) -> None:
        kind = sentence.partition(" yet")[0]
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("%s", sentence)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._reach()

    def reportLatestOffset(self) -> Offset:
        return self._reach()

    def partitions(self, start: Position, end: Position) -> list[Slice]:
        if start == end:
            return []
        journals, behind, chosen = Journals(self.options.path), digest_of(end), copies_of(end)
        extents = journals.extents(behind=behind)
        floor = earliest(extents) | {sender: copies[0].first - 1
                                     for sender, copies in chosen.items()}
        return self.plan(journals, ranges(digest_of(start), behind, floor), extents, chosen)

    def commit(self, end: Position) -> None:
        if self.options.subscription is not None:
            subscribe(self.options.path, self.options.subscription, digest_of(end))

    def _reach(self) -> Offset:
        reach = Journals(self.options.path).reach()
        return {sender: seqno for sender, seqno in reach.items() if self.options.wants(sender)}


def columns(include_headers: bool) -> pa.Schema:
    """Return all columns of a read."""
    return WITH_HEADERS if include_headers else ROWS


def projection(schema: StructType, table: pa.Schema) -> pa.Schema:
    """Return the Arrow schema, exact to the nullability, of the columns that the user's
    schema names. Raises ConfigError for a column that `table` does not have."""
    types = {field.name: field.dataType for field in from_arrow_schema(table)}
    for field in schema:
        if types.get(field.name) != field.dataType:
            known = ", ".join(f"{name} {kind.simpleString()}" for name, kind in types.items())
            wanted = f"{field.name} {field.dataType.simpleString()}"
            raise ConfigError(f"ringcast has no column {wanted!r}; its columns are {known}.")
    return pa.schema([table.field(field.name).with_nullable(field.nullable) for field in schema])


def _few(senders: Iterable[str]) -> str:
    """Return the first five senders, for a sentence."""
    names = sorted(senders)
    return listed(names, 5) if names else "nobody"


def _row_bytes(journals: Journals, copies: list[Copy]) -> float:
    """Return the mean size of a message, with all that the journal stores beside it, in
    the segments that the copies are in."""
    size = rows = 0
    for copy in copies:
        touched = journals.named(copy.journal).segments(*copy[:3])
        size += sum(piece.size for piece in touched)
        rows += sum(piece.last - piece.first + 1 for piece in touched)
    return size / rows if rows else 0.0


def _partition_rows(copies: list[Copy], row_bytes: float, options: ReadOptions) -> int:
    """Return how many messages go into one partition."""
    if not copies:
        return 1
    total = sum(copy.last - copy.first + 1 for copy in copies)
    target = PARTITION_ROWS
    if row_bytes * PARTITION_ROWS > PARTITION_BYTES:
        target = max(1, int(PARTITION_BYTES / row_bytes))
    parts = -(-total // target)
    if parts < ROUNDED_PARTITIONS:
        parts = 1 << (parts - 1).bit_length()
    parts = max(options.min_partitions or 1, parts)
    return max(1, min(-(-total // parts), options.max_records_per_partition or total))
