"""The Spark source: `spark.read.format("ringcast").load(DIR)` and
`spark.readStream.format("ringcast").load(DIR)`.

A journal is a table that grows. A batch read gives what is durable now; a stream gives
every durable message exactly once to a sink that is idempotent by batch. The offset is
a digest (see `offsets`) and names the journals that its batch is read from, so
replaying a batch after a crash gives exactly the same rows, to the view and the time of
delivery. `DIR` is a journal, or a folder of journals that several recorders of one
group keep (see `merge`), and must be visible under the same path to the driver and the
workers.

Options, of both unless marked:

- `startingOffsets`: `earliest` (default, also for streams: the first run over a journal
  should read it), `latest` (streams), or a JSON digest {"name#incarnation": seqno} of
  what is behind us; senders it does not name start at their beginning.
- `endingOffsets` (batch): `latest` (default) or a JSON digest of the last messages to
  read; senders it does not name are not read.
- `startingTimestamp`, `endingTimestamp` (batch): instead of offsets: from each sender's
  first message that was sent then or later, and up to the last before the first one
  sent then or later. Milliseconds since 1970, or ISO 8601.
- `senders`: only these, with commas between: NAME for all incarnations of a member,
  NAME#INCARNATION for one. A batch read of one that no journal knows is an error; a
  stream waits for it, and logs that it does.
- `failOnDataLoss` (default true): an error if messages in the range were purged, or
  never reached a recorder, or the journal ends before the offset. With false they are
  passed over. Also an error, of streams: a batch runs again, the journal of several
  that it was read from is gone, and `view_id`, `delivered_at` or `headers` are read.
  With false another journal's are given instead; the other columns are what the sender
  said, the same in every journal, so that without these three any journal serves.
- `maxOffsetsPerTrigger` (streams): at most so many messages in one batch; smallest
  backlogs first.
- `minOffsetsPerTrigger` (streams): no batch before so many messages wait, or
  `maxTriggerDelay` (default `15m`) has passed since the last one, as of Kafka's source:
  the first batch of a run never waits, nor does a run over what is there
  (AvailableNow).
- `subscriptionName` (streams): what the stream has committed is written into the
  journals under this name, for their retention (see `retention`). Spark commits a batch
  when it plans the next one, so that this lags one batch.
- `minPartitions`, `maxRecordsPerPartition`: bounds of the split, otherwise up to
  1,000,000 messages or 192 MiB in a partition.
- `includeHeaders` (default false): one more column, `headers array<struct<key string,
  value binary>>` as Kafka's source has it, with what is known of a row beside its
  columns: `journal`, the name of the journal's directory, and `recorder`, the member
  that recorded it (empty if the journal was not told). With several journals that is
  the one that the row was read from.

A schema given by the user is a projection: any of the columns, in any order, with their
own types. Without `payload` the payloads stay on the disk. `select` alone does not
narrow what is read: Spark (4.3) does not tell a source written in Python which columns
a query uses.

With `filterPushdown` (batch, default false) a query's filters on sender, seqno, sent_at
and delivered_at reach the reader, which then opens only the segments that can have such
rows; Spark's own `spark.sql.python.filterPushdown.enabled` must be true as well
(`ringcast.spark.session` sees to it), else Spark filters what was read. It is not the
default because Spark 4.3 keeps the plan of the last query with the loaded DataFrame: a
second query over the same DataFrame, without a filter or with two at once, would get
the rows that the last filter let through, and no error. So load anew for each query
that filters. `senders`, offsets and timestamps narrow a read as well, and have no such
trap.

A loaded DataFrame is what was durable when a query first planned it, as Spark keeps
that plan; load anew to see more.

A stream may start before the recorder did: until the journal exists there is nothing to
read, and what is recorded then is read from its start. A batch read of a journal that
does not exist is an error.
"""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from time import monotonic

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
from ringcast.journal.rows import OF_THE_RECORDER, ROWS, WITH_HEADERS
from ringcast.journal.subscriptions import subscribe
from ringcast.spark.filters import Bounds, sent_before
from ringcast.spark.options import (
    BATCH_OPTIONS,
    EARLIEST,
    LATEST,
    LOAD_OPTIONS,
    STREAM_OPTIONS,
    Options,
    plainly,
)

log = logging.getLogger("ringcast")

PARTITION_ROWS = 1_000_000  # far fewer, and starting the tasks costs more than reading (measured)
PARTITION_BYTES = 192 << 20
EVEN_PARTS = 32  # fewer partitions are rounded up to a power of two: the last of three keeps one of
                 # two cores idle

# Spark asks for filters in a process of its own, which has loaded this module. Where
# Spark was not told to push filters down, a reader that only has the method fails every
# read; so it has it in that process alone.
_FILTERING = "pyspark.sql.worker.data_source_pushdown_filters"


class Slice(InputPartition):
    """What one task reads."""

    def __init__(self, path: Path, copies: list[Copy], segments: list[list[Span]]) -> None:
        self.path = path
        self.copies = copies
        self.segments = segments  # those that each copy is in, so that a task need not look for
                                  # them


class RingcastDataSource(DataSource):
    """The journals of a ringcast group as a table."""

    @classmethod
    def name(cls) -> str:
        return "ringcast"

    def schema(self) -> StructType:
        """Return the columns. Spark asks load() for them, so that wrong options are
        told there."""
        with plainly():
            return from_arrow_schema(columns(Options(self.options, LOAD_OPTIONS).include_headers))

    def reader(self, schema: StructType) -> "BatchReader":
        with plainly():
            options = Options(self.options, BATCH_OPTIONS, "a batch read")
            filters = options.filter_pushdown and _FILTERING in sys.modules
            kind = FilteringReader if filters else BatchReader
            return kind(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            with plainly():
                return StreamReader(Options(self.options, STREAM_OPTIONS, "a stream"), schema)
        except ConfigError as error:
            return Refused(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from ringcast.spark.sink import BatchWriter

        with plainly():
            return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from ringcast.spark.sink import StreamWriter

        with plainly():
            return StreamWriter(self.options, schema, overwrite)


class Refused(DataSourceStreamReader):
    """A stream that is told its mistake when Spark first asks it for something.

    PySpark stops the reader at the end even if it never got one, and reports that error
    instead of ours. So `streamReader` always returns a reader.
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
    """What batches and streams share: the plan of ranges, and reading a slice of it in
    a worker."""

    stand_in = True  # whether another journal may give what the one that was planned cannot

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.projection = projection(schema, columns(options.include_headers))
        self.bounds = Bounds()

    def plan(self, journals: Journals, spans: list[Range], extents: Mapping[str, Extent],
             chosen: Mapping[str, Sequence[Copy]]) -> list[Slice]:
        """The tasks for these ranges, which are read from where it was `chosen` before;
        JournalError if some of them is lost and the user wants to know."""
        spans = self.bounds.ranges(spans)
        strict = self.options.fail_on_data_loss
        if strict:
            refuse(losses(spans, extents),
                   f"The journal {self.options.path} does not have all messages of this range")
        copies = self.bounds.timely(journals, journals.copies_again(spans, chosen, strict=strict,
                                                                    stand_in=self.stand_in))
        rows = _partition_rows(copies, _row_bytes(journals, copies), self.options)
        return [Slice(self.options.path, part, [journals.named(copy.journal).spans(*copy[:3])
                                                for copy in part])
                for part in cut(copies, rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Slice):  # what Spark makes of an empty plan
            return
        for copy, segments in zip(partition.copies, partition.segments, strict=True):
            yield from read_copy(partition.path, copy, self.projection, segments=segments,
                                 strict=self.options.fail_on_data_loss, stand_in=self.stand_in)

    def wanted(self, extents: Mapping[str, Extent]) -> dict[str, Extent]:
        """The senders that the user wants."""
        return {sender: extent for sender, extent in extents.items() if self.options.wants(sender)}

    def start(self, journals: Journals, extents: Mapping[str, Extent]) -> Offset:
        """Where the user wants to begin."""
        if self.options.starting_timestamp is not None:
            return canonical(sent_before(journals, self.options.starting_timestamp, extents))
        start = self.options.starting_offsets
        return start if isinstance(start, dict) else earliest(extents) if start == EARLIEST else latest(extents)


class BatchReader(_SliceReader, DataSourceReader):
    """What is durable when the job is planned, between two offsets."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.starting_offsets == LATEST:
            raise ConfigError("startingOffsets=latest reads nothing in a batch: use earliest, a JSON digest, or a stream.")
        if options.ending_offsets == EARLIEST:
            raise ConfigError("endingOffsets=earliest reads nothing: use latest or a JSON digest.")

    def partitions(self) -> list[Slice]:
        journals = Journals(self.options.path)
        if not journals.journals:
            raise JournalError(f"There is no journal at {self.options.path}: check the name, or start recording to it first.")
        there = journals.extents()
        if missing := self.options.unknown_senders(there):
            raise JournalError(f"{self.options.path} has no messages of {', '.join(missing)}, which the option senders names; "
                               f"it has those of {_few(there)}.")
        extents = self.wanted(there)
        start, end = self.start(journals, extents), self.end(journals, extents)
        if self.options.fail_on_data_loss:
            refuse(overtaken(start, journals.reach()),
                   f"startingOffsets is beyond the end of the journal {self.options.path}")
        return self.plan(journals, ranges(start, end, earliest(extents)), extents, {})

    def end(self, journals: Journals, extents: Mapping[str, Extent]) -> Offset:
        """Where the user wants to stop."""
        if self.options.ending_timestamp is not None:
            return canonical(sent_before(journals, self.options.ending_timestamp, extents))
        end = self.options.ending_offsets
        return latest(extents) if isinstance(end, str) else {name: seqno for name,
                                                             seqno in end.items()
                                                             if self.options.wants(name)}


class FilteringReader(BatchReader):
    """The same, of what a query's filters let through."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return [wish for wish in filters if not self.bounds.narrow(wish)]


class StreamReader(_SliceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What becomes durable, batch by batch."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: Offset | None = None  # where an AvailableNow run ends
        self._triggered = -inf  # when the last batch was let through
        self._said: set[str] = set()
        # A batch that runs again must have the rows that it had; what the sender said
        # is the same in every journal.
        self.stand_in = not options.fail_on_data_loss or not set(OF_THE_RECORDER).intersection(
            self.projection.names)

    def initialOffset(self) -> Offset:
        journals = Journals(self.options.path)
        return self.start(journals, self.wanted(journals.extents()))

    def getDefaultReadLimit(self) -> ReadLimit:
        least, most = self.options.min_offsets_per_trigger, self.options.max_offsets_per_trigger
        if least is not None:
            return ReadMinRows(least)  # Spark's limits are one or the other: latestOffset knows
                                       # that there is a most as well
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        journals, begin = Journals(self.options.path), digest_of(start)
        if self.options.fail_on_data_loss:
            refuse(overtaken(begin, journals.reach()),
                   f"The stream has read further than the journal {self.options.path} goes")
        there = journals.extents(behind=begin)
        self._tell(journals, there)
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
        # One journal needs no name, but where a new sender began must be known when it
        # is purged meanwhile.
        spans = [span for span in ranges(begin, end, floor) if not journals.is_one
                 or span.sender not in begin]
        return position(end, journals.copies(spans))

    def _waits(self, least: int, begin: Offset, target: Offset, floor: Offset) -> bool:
        """Whether there are too few messages for a batch, and it is not yet time for
        one all the same."""
        there = sum(span.last - span.first + 1
                    for span in ranges(begin, advance(begin, target, floor, None), floor))
        now = monotonic()
        if there < least and now - self._triggered < self.options.max_trigger_delay:
            return True
        self._triggered = now
        return False

    def _tell(self, journals: Journals, there: Mapping[str, Extent]) -> None:
        """Log, once, what the stream waits for and may never come: a journal, or
        senders."""
        if not journals.journals:
            self._say(f"There is no journal at {self.options.path} yet; the stream waits for one.")
        elif there and (missing := self.options.unknown_senders(there)):
            self._say(f"{self.options.path} has no messages of {', '.join(missing)} yet, which the option senders names; it has those "
                      f"of {_few(there)}, and the stream waits for the others.")

    def _say(self, sentence: str) -> None:
        kind = sentence.partition(" yet")[0]
        if kind not in self._said:
            self._said.add(kind)
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
        floor = earliest(extents) | {sender: copies[0].first - 1 for sender,
                                     copies in chosen.items()}
        return self.plan(journals, ranges(digest_of(start), behind, floor), extents, chosen)

    def commit(self, end: Position) -> None:
        if self.options.subscription is not None:
            subscribe(self.options.path, self.options.subscription, digest_of(end))

    def _reach(self) -> Offset:
        reach = Journals(self.options.path).reach()
        return {sender: seqno for sender, seqno in reach.items() if self.options.wants(sender)}


def columns(include_headers: bool) -> pa.Schema:
    """All columns of a read."""
    return WITH_HEADERS if include_headers else ROWS


def projection(schema: StructType, table: pa.Schema) -> pa.Schema:
    """The Arrow schema, exact to the nullability, of the columns that a user's schema
    names; ConfigError for any other."""
    types = {field.name: field.dataType for field in from_arrow_schema(table)}
    for field in schema:
        if types.get(field.name) != field.dataType:
            known = ", ".join(f"{name} {kind.simpleString()}" for name, kind in types.items())
            wanted = f"{field.name} {field.dataType.simpleString()}"
            raise ConfigError(f"ringcast has no column {wanted!r}; its columns are {known}.")
    return pa.schema([table.field(field.name).with_nullable(field.nullable) for field in schema])


def _few(senders: Iterable[str]) -> str:
    """The first few senders, for a sentence."""
    names = sorted(senders)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5
                                   else "") if names else "nobody"


def _row_bytes(journals: Journals, copies: list[Copy]) -> float:
    """The mean size of a message in the segments that the copies touch, with what the
    journal stores beside it."""
    size = rows = 0
    for copy in copies:
        touched = journals.named(copy.journal).segments(*copy[:3])
        size += sum(piece.size for piece in touched)
        rows += sum(piece.last - piece.first + 1 for piece in touched)
    return size / rows if rows else 0.0


def _partition_rows(copies: list[Copy], row_bytes: float, options: Options) -> int:
    """How many messages go into one partition."""
    if not copies:
        return 1
    total = sum(copy.last - copy.first + 1 for copy in copies)
    target = PARTITION_ROWS if row_bytes * PARTITION_ROWS <= PARTITION_BYTES else max(1,
                                                                                      int(PARTITION_BYTES / row_bytes))
    parts = -(-total // target)
    if parts < EVEN_PARTS:
        parts = 1 << (parts - 1).bit_length()
    parts = max(options.min_partitions or 1, parts)
    return max(1, min(-(-total // parts), options.max_records_per_partition or total))
