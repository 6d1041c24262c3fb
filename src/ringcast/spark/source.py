"""The Spark source: `spark.read.format("ringcast").load(DIR)` and `spark.readStream.format("ringcast").load(DIR)`.

A journal is a table that grows. A batch read gives what is durable now; a stream gives every durable message exactly once to a
sink that is idempotent by batch. The offset is a digest (see `offsets`), so replaying a batch after a crash reads exactly
the same messages. `DIR` must be visible under the same path to the driver and the workers.

Options, of both unless marked:

- `startingOffsets`: `earliest` (default, also for streams: the first run over a journal should read it), `latest` (streams), or
  a JSON digest {"name#incarnation": seqno} of what is behind us; senders it does not name start at their beginning.
- `failOnDataLoss` (default true): an error if messages in the range were purged before the recorder got them, or the journal
  ends before the offset. With false they are passed over.
- `maxOffsetsPerTrigger` (streams): at most so many messages in one batch; smallest backlogs first.
- `minPartitions`, `maxRecordsPerPartition`: bounds of the split, otherwise 500,000 messages or 128 MiB in a partition.

A schema given by the user is a projection: any of the columns, in any order, with their own types.

A stream may start before the recorder did: until the journal exists there is nothing to read, and what is recorded then is
read from its start. A batch read of a journal that does not exist is an error.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ..errors import ConfigError
from .manifest import Extent, read_meta
from .offsets import Offset, Range, advance, canonical, cut, earliest, latest, losses, overtaken, ranges, refuse
from .reader import JournalReader
from .rows import ROWS

PARTITION_ROWS = 500_000  # far fewer, and starting the tasks costs more than reading (measured)
PARTITION_BYTES = 128 << 20

_BATCH_OPTIONS = ("path", "startingOffsets", "failOnDataLoss", "minPartitions", "maxRecordsPerPartition")
_STREAM_OPTIONS = (*_BATCH_OPTIONS, "maxOffsetsPerTrigger")


class Options:
    """The options of one read, checked: ConfigError for an unknown one or a value outside its range."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in known}
        for name in given:
            if name.lower() not in names:
                raise ConfigError(f"ringcast has no option {name!r} here; it knows {', '.join(sorted(known))}.")
        self._given = {names[name.lower()]: value for name, value in given.items()}
        if not self._given.get("path"):
            raise ConfigError('Name the journal: .format("ringcast").load(DIRECTORY).')
        self.path = Path(self._given["path"].removeprefix("file://").removeprefix("file:")).absolute()
        self.fail_on_data_loss = self._flag("failOnDataLoss", True)
        self.max_offsets_per_trigger = self._count("maxOffsetsPerTrigger")
        self.min_partitions = self._count("minPartitions")
        self.max_records_per_partition = self._count("maxRecordsPerPartition")
        self.starting_offsets = self._start()

    def _flag(self, name: str, default: bool) -> bool:
        value = self._given.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise ConfigError(f"{name} must be true or false, not {value!r}.")
        return value == "true"

    def _count(self, name: str) -> int | None:
        value = self._given.get(name)
        if value is None:
            return None
        if not value.isdecimal() or int(value) < 1:
            raise ConfigError(f"{name} must be a whole number from 1, not {value!r}.")
        return int(value)

    def _start(self) -> str | Offset:
        value = self._given.get("startingOffsets", "earliest")
        if value in ("earliest", "latest"):
            return value
        try:
            return canonical(msgspec.json.decode(value, type=dict[str, Annotated[int, msgspec.Meta(ge=0)]]))
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f'startingOffsets must be earliest, latest or a JSON digest like {{"A#0123456789abcdef": 5}}, not {value!r}.'
            ) from error


class Slice(InputPartition):
    """What one task reads."""

    def __init__(self, path: Path, spans: list[Range]) -> None:
        self.path = path
        self.spans = spans


class RingcastDataSource(DataSource):
    """The journal of a ringcast group as a table."""

    @classmethod
    def name(cls) -> str:
        return "ringcast"

    def schema(self) -> StructType:
        return from_arrow_schema(ROWS)

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(Options(self.options, _BATCH_OPTIONS), schema)

    def streamReader(self, schema: StructType) -> "StreamReader":
        return StreamReader(Options(self.options, _STREAM_OPTIONS), schema)


class _SliceReader:
    """What batches and streams share: the plan of a range, and reading a slice of it in a worker."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.projection = projection(schema)

    def plan(self, journal: JournalReader, spans: list[Range]) -> list[Slice]:
        rows = _partition_rows(spans, _row_bytes(journal, spans), self.options)
        return [Slice(self.options.path, part) for part in cut(spans, rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        journal = JournalReader(partition.path)
        for sender, first, last in partition.spans:
            yield from journal.read(sender, first, last, self.projection)

    def checked(self, start: Offset, end: Offset, extents: Mapping[str, Extent]) -> list[Range]:
        """The ranges between two offsets; JournalError if some of it is lost and the user wants to know."""
        spans = ranges(start, end, earliest(extents))
        if self.options.fail_on_data_loss:
            refuse(losses(spans, extents), f"The journal {self.options.path} has lost messages of this range")
        return spans


class BatchReader(_SliceReader, DataSourceReader):
    """Everything that is durable when the job is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.starting_offsets == "latest":
            raise ConfigError("startingOffsets=latest reads nothing in a batch: use earliest, a JSON digest, or a stream.")

    def partitions(self) -> list[Slice]:
        journal = JournalReader(self.options.path)
        extents = journal.extents()
        start: Offset = {} if isinstance(self.options.starting_offsets, str) else self.options.starting_offsets
        if self.options.fail_on_data_loss:
            refuse(overtaken(start, extents), f"startingOffsets is beyond the end of the journal {self.options.path}")
        return self.plan(journal, self.checked(start, latest(extents), extents))


class StreamReader(_SliceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What becomes durable, batch by batch. Purges nothing: `commit` has nothing to do."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: Offset | None = None  # where an AvailableNow run ends

    def initialOffset(self) -> Offset:
        start = self.options.starting_offsets
        extents = self._extents()
        if start == "latest":
            return latest(extents)
        return earliest(extents) if isinstance(start, str) else start

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        extents = self._extents()
        if self.options.fail_on_data_loss:
            refuse(overtaken(start, extents), f"The stream has read further than the journal {self.options.path} goes")
        target = latest(extents) if self._target is None else self._target
        return advance(start, target, earliest(extents), limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = latest(self._extents())

    def reportLatestOffset(self) -> Offset:
        return latest(self._extents())

    def partitions(self, start: Offset, end: Offset) -> list[Slice]:
        if start == end:
            return []
        journal = JournalReader(self.options.path)
        return self.plan(journal, self.checked(start, end, journal.extents()))

    def _extents(self) -> dict[str, Extent]:
        """What is durable; nothing as long as nobody has started the journal."""
        return {} if read_meta(self.options.path) is None else JournalReader(self.options.path).extents()


def projection(schema: StructType) -> pa.Schema:
    """The Arrow schema, exact to the nullability, of the columns that a user's schema names; ConfigError for any other."""
    types = {field.name: field.dataType for field in from_arrow_schema(ROWS)}
    for field in schema:
        if types.get(field.name) != field.dataType:
            known = ", ".join(f"{name} {kind.simpleString()}" for name, kind in types.items())
            wanted = f"{field.name} {field.dataType.simpleString()}"
            raise ConfigError(f"ringcast has no column {wanted!r}; its columns are {known}.")
    return pa.schema([ROWS.field(field.name).with_nullable(field.nullable) for field in schema])


def _row_bytes(journal: JournalReader, spans: list[Range]) -> float:
    """The mean size of a message in the segments that the ranges touch, with what the journal stores beside it."""
    size = rows = 0
    for sender, first, last in spans:
        touched = [piece for piece in journal.segments(sender) if piece.first <= last and piece.last >= first]
        size += sum(piece.size for piece in touched)
        rows += sum(piece.last - piece.first + 1 for piece in touched)
    return size / rows if rows else 0.0


def _partition_rows(spans: list[Range], row_bytes: float, options: Options) -> int:
    """How many messages go into one partition."""
    total = sum(last - first + 1 for _, first, last in spans)
    target = PARTITION_ROWS if row_bytes * PARTITION_ROWS <= PARTITION_BYTES else max(1, int(PARTITION_BYTES / row_bytes))
    parts = max(options.min_partitions or 1, -(-total // target))
    return max(1, min(-(-total // parts), options.max_records_per_partition or total))
