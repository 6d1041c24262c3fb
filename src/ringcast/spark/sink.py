"""The Spark sink: `df.write.format("ringcast").mode("append").save(OUTBOX)` and
`df.writeStream.format("ringcast")`, exactly once.

Tasks do not join the group: they write their rows into an outbox (see `outbox`), a
folder that the driver, the workers and one publisher share, and `ringcast publish`
multicasts them. A commit returns when every member of the group has acknowledged all
rows of the batch: so a slow group slows the query down, and nothing heaps up. Messages
have the order of the partitions, and within one of its rows. One stream for all that
Spark writes, with one sender's seqnos, is why receivers need not remember batches to
drop repeats.

The one column is `payload`, binary, or string, which is sent as UTF-8. Options:

- `path`: the outbox.
- `ackTimeout` (default `60s`): how long a task waits for a publisher or for room, and a
  commit for the acks, before it fails with a sentence that says who is missing. With a
  unit: ms, s, m or h.
- `maxOutboxBytes` (default `1g`): what the outbox may hold; tasks wait for room, so
  that a dead group does not fill the disk. In bytes, or with a unit: k, m or g.
- `txnAppId` and `txnVersion` (batch writes): a write whose version is not above the
  last one of its application was there before, and is not sent again.

A wrong option of a batch is told by `save`, one of a stream when its first micro-batch
begins: Spark does not ask the sink earlier.

A micro-batch that Spark runs again is known by the id of its query (the checkpoint's)
and its number: tasks write nothing, and the commit only waits. A batch write without
txnAppId is sent each time it is written.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from ringcast.errors import AckTimeoutError, ConfigError, MessageTooLargeError
from ringcast.outbox.store import PAYLOADS, Meta, Outbox, Part
from ringcast.paths import local_path
from ringcast.spark.options import chosen
from ringcast.units import parse_duration, parse_size

LOOK = 0.01                             # seconds between two looks at the outbox

_STREAM_OPTIONS = ("path", "ackTimeout", "maxOutboxBytes")
_BATCH_OPTIONS = (*_STREAM_OPTIONS, "txnAppId", "txnVersion")
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname"})  # what writeStream adds, in Spark 4.3


@dataclass
class Written(WriterCommitMessage):
    """What one task did: its part, None for no rows; or that its batch was there
    before, so that it did nothing."""

    query: str | None
    part: Part | None
    replayed: bool = False


class Options:
    """The options of one write, checked: ConfigError for an unknown one or a value
    outside its range."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        values = chosen(given, known, "a write", _SPARKS_OWN)
        if not values.get("path"):
            raise ConfigError('Name the outbox, the directory that ringcast publish was given: .option("path", DIRECTORY).')
        self.path = local_path(values["path"]).absolute()
        timeout = _quantity(values, "ackTimeout", "60s", parse_duration, "60s or 500ms")
        self.ack_timeout = timeout / 1e9
        self.max_outbox_bytes = _quantity(values, "maxOutboxBytes", "1g", parse_size, "500m or 1g")
        self.app_id = values.get("txnAppId")
        self.version = self._version(values.get("txnVersion"))

    def _version(self, value: str | None) -> int:
        if (self.app_id is None) != (value is None):
            raise ConfigError("txnAppId and txnVersion belong together: give both, or neither.")
        if value is not None and not value.isdecimal():
            raise ConfigError(f"txnVersion must be a whole number from 0 that grows from write to write, not {value!r}.")
        return int(value or 0)


def _quantity(values: Mapping[str, str], name: str, default: str,
              parse: Callable[[str], int | None], example: str) -> int:
    """Return the value of an option that has a unit, in the smallest one."""
    given = values.get(name, default)
    if not (found := parse(given)):
        raise ConfigError(f"{name} must be a whole number from 1 with a unit, like {example}, "
                          f"not {given!r}.")
    return found


class _Writer:
    """What batches and streams share."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...], schema: StructType,
                 overwrite: bool) -> None:
        self.options = Options(given, known)
        check_schema(schema)
        if overwrite:
            raise ConfigError('What was sent to a group cannot be taken back: write with mode("append"), or outputMode("append").')
        self.outbox = Outbox(self.options.path)

    # -- in a worker
    # ---------------------------------------------------------------------------------------------------

    def store(self, query: str | None, batch: int, batches: Iterator[pa.RecordBatch]) -> Written:
        """What a task does: its rows become a part, unless their batch is in the outbox
        already."""
        meta = self._await_publisher()
        if self.outbox.find(query, batch) is not None:
            for _ in batches:                           # Spark wants to be rid of them
                pass
            return Written(query, None, replayed=True)
        self._await(lambda: self.outbox.nbytes() < self.options.max_outbox_bytes,
                    f"The outbox {self.options.path} is full "
                    f"(maxOutboxBytes={self.options.max_outbox_bytes}), and got no room")
        columns = (payloads(batch, meta) for batch in batches if batch.num_rows)
        first = next(columns, None)
        if first is None:
            return Written(query, None)
        return Written(query, self.outbox.write_part(_chained(first, columns),
                                                     self.options.max_outbox_bytes))

    def _await_publisher(self) -> Meta:
        self._await(lambda: self.outbox.is_served() and self.outbox.ledger() is not None,
                    "Nothing can be sent")
        meta = self.outbox.meta()
        assert meta is not None                         # it is there before the first ledger is
        return meta

    # -- on the driver
    # -------------------------------------------------------------------------------------------------

    def settle(self, messages: list[WriterCommitMessage | None], batch: int, again: str) -> None:
        """The batch becomes one, and every member acknowledges it; `again` is what to
        know when that takes too long."""
        written = [message for message in messages if isinstance(message, Written)]
        if not written:
            return
        query, replayed = written[0].query, any(message.replayed for message in written)
        parts = [message.part for message in written if message.part is not None]
        number = self.outbox.find(query, batch) if replayed else self.outbox.commit(query, batch,
                                                                                    parts) if parts else 0
        if replayed:
            self.outbox.discard(parts)
        self._await(lambda: not number or self.outbox.is_finished(number),
                    f"Batch {batch} was not acknowledged by every member",
                    f" The batch stays in the outbox; {again}")

    def forget(self, messages: list[WriterCommitMessage | None], batch: int) -> None:
        """The batch will not be, if it is not one already; a task that is late leaves a
        part, which the publisher removes."""
        written = [message for message in messages if isinstance(message, Written)]
        committed = {part.name for manifest in self.outbox.pending()[0].values()
                     for part in manifest.parts} if written else set()
        self.outbox.discard(message.part for message in written if message.part is not None
                            and message.part.name not in committed)

    # -- waiting
    # -------------------------------------------------------------------------------------------------------

    def _await(self, condition: Callable[[], bool], what: str, after: str = "") -> None:
        deadline = time.monotonic() + self.options.ack_timeout
        while not condition():
            if time.monotonic() > deadline:
                raise AckTimeoutError(f"{what} within {self.options.ack_timeout:g} s: {self._why()}{after}")
            time.sleep(LOOK)

    def _why(self) -> str:
        """Who keeps the group from getting anything, and what to do."""
        path, meta, status = self.options.path, self.outbox.meta(), self.outbox.status()
        if not self.outbox.is_served():
            last = f" (the last one {status.state})" if status is not None else ""
            group = meta.group if meta is not None else "GROUP"
            return f"no publisher runs on the outbox {path}{last}; start one: ringcast publish {path} --group {group} --members ..."
        if status is not None and status.waiting_for is not None:
            return f"the publisher waits for the member {status.waiting_for} to acknowledge; exclude it if it is dead, or send less."
        return f"the publisher {status.state if status is not None else 'has only started'}; see what it says, and give it more time."


class BatchWriter(_Writer, DataSourceArrowWriter):
    """df.write."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(given, _BATCH_OPTIONS, schema, overwrite)
        self.query = None if self.options.app_id is None else f"app {self.options.app_id}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.store(self.query, self.options.version, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.settle(messages, self.options.version, "do not write it again, it will be sent."
                    if self.query is None else
                    "written again with the same txnVersion it is not sent twice.")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.forget(messages, self.options.version)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """df.writeStream."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(given, _STREAM_OPTIONS, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = TaskContext.get()
        assert task is not None
        query, batch = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty(
            "streaming.sql.batchId")
        if not query or batch is None:
            raise ConfigError("Spark does not say which batch of which query this is; ringcast needs pyspark from 4.2 on.")
        return self.store(f"query {query}", int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.settle(messages, batchId, "start the query again, and it is not sent twice.")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.forget(messages, batchId)


def check_schema(schema: StructType) -> None:
    """ConfigError unless there is the one column that can be sent."""
    names = [field.name for field in schema]
    if names != ["payload"] or not isinstance(schema["payload"].dataType, (BinaryType, StringType)):
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
        raise ConfigError(f"ringcast sends one column, payload, binary or string; this has {columns or 'none'}: select what is to be "
                          'sent, for example df.selectExpr("to_json(struct(*)) AS payload").')


def payloads(batch: pa.RecordBatch, meta: Meta) -> pa.RecordBatch:
    """The rows as they are stored; an error for one that cannot be sent."""
    column = batch.column(0)
    if column.null_count:
        raise ConfigError(f"{column.null_count} payloads are null, and a message cannot be: filter them out, or coalesce them.")
    column = column.cast(pa.binary())
    largest = pc.max(pc.binary_length(column)).as_py()
    if largest > meta.max_message_size:
        raise MessageTooLargeError(f"A payload of {largest} bytes is larger than the group's max_message_size, which is "
                                   f"{meta.max_message_size}: split it, or give every member a "
                                   f"larger limit.")
    return pa.RecordBatch.from_arrays([column], schema=PAYLOADS)


def _chained(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others
