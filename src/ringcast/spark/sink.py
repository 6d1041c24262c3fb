"""The Spark sink: `df.write.format("ringcast").mode("append").save(OUTBOX)` and
`df.writeStream.format("ringcast")`, exactly once.

Tasks do not join the group. They write their rows into an outbox (see outbox/store.py),
a folder that the driver, the workers and one publisher share, and `ringcast publish`
multicasts them. A commit returns when every member of the group has acknowledged all
rows of the batch, so a slow group slows the query down (back-pressure). Messages have
the order of the partitions, and within a partition the order of its rows. All that
Spark writes is one stream, with the seqnos of one sender, so receivers need not
remember batches to drop duplicates.

The one column is `payload`: binary, or string, which is sent as UTF-8. The options:

- `path`: the directory of the outbox.
- `ackTimeout` (default `60s`): the longest time that a task waits for a publisher or
  for room, and that a commit waits for the acks. After it the write fails, with a
  sentence that says who is missing. A whole number with a unit: us, ms, s, m, h or d.
- `maxOutboxBytes` (default `1g`): the size of the outbox from which tasks wait for
  room, so that a dead group does not fill the disk. A whole batch must fit: nothing of
  it is sent before its commit, so a larger one fails. Bytes, or a whole number with a
  unit: k, m, g or t (powers of 1024).
- `txnAppId` and `txnVersion` (batch writes; both or neither): a write is not sent again
  if its version is not above the last version that this application wrote.

A wrong option of a batch write is reported by `save`. One of a stream is reported when
its first micro-batch begins: Spark does not ask the sink earlier.

A micro-batch that Spark runs again is recognized by the id of its query (which is in
the checkpoint) and its number: its tasks write nothing, and the commit only waits. A
batch write without txnAppId is sent each time it is written.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from ringcast.errors import AckTimeoutError, ConfigError, MessageTooLargeError, OutboxError
from ringcast.outbox.store import APPLICATION, PAYLOADS, Outbox, OutboxMeta, OutboxPart
from ringcast.spark.options import Options
from ringcast.units import parse_count, parse_duration, parse_size

POLL_INTERVAL = 0.01                    # seconds between two reads of the outbox's files

_STREAM_OPTIONS = ("path", "ackTimeout", "maxOutboxBytes")
_BATCH_OPTIONS = (*_STREAM_OPTIONS, "txnAppId", "txnVersion")


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote: its part, or None for no rows. `replayed`: the batch was in
    the outbox before, so the task wrote nothing."""

    query: str | None
    part: OutboxPart | None
    replayed: bool = False


class WriteOptions(Options):
    """The options of one write, checked. Raises ConfigError for an unknown option or a
    value outside its range."""

    # What Spark adds to the options of a writeStream, in lower case.
    added_by_spark = frozenset({"checkpointlocation", "queryname"})

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        super().__init__(given, known, "a write", "Name the outbox, the directory that ringcast "
                         'publish was given: .option("path", DIRECTORY).')
        self.ack_timeout = self._quantity("ackTimeout", "60s", parse_duration, "60s or 500ms") / 1e9
        self.max_outbox_bytes = self._quantity("maxOutboxBytes", "1g", parse_size, "500m or 1g")
        self.app_id = self._given.get("txnAppId")
        self.version = self._version(self._given.get("txnVersion"))

    def _version(self, value: str | None) -> int:
        if (self.app_id is None) != (value is None):
            raise ConfigError("txnAppId and txnVersion belong together: give both, or neither.")
        version = parse_count(value or "0")
        if version is None:
            raise ConfigError("txnVersion must be a whole number from 0 that grows from write to "
                              f"write, not {value!r}.")
        return version

    def _quantity(self, name: str, default: str, parse: Callable[[str], int | None],
                  example: str) -> int:
        """Return the value of an option that has a unit, in the smallest one."""
        given = self._given.get(name, default)
        if not (found := parse(given)):
            raise ConfigError(f"{name} must be a whole number from 1 with a unit, like {example}, "
                              f"not {given!r}.")
        return found


class _Writer:
    """The common part of batch writes and streams."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...], schema: StructType,
                 overwrite: bool) -> None:
        self.options = WriteOptions(given, known)
        check_schema(schema)
        if overwrite:
            raise ConfigError("What was sent to a group cannot be taken back: write with "
                              'mode("append"), or outputMode("append").')
        self.outbox = Outbox(self.options.path)
        self.id = secrets.token_hex(8)                  # the tasks get a copy of this writer

    # ---------------------------------------------------------------------- in a worker

    def write_rows(self, query: str | None, batch: int,
                   batches: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task as a part, unless their batch is in the outbox
        already."""
        meta = self._await_publisher()
        if self.outbox.find(query, batch) is not None:
            for _ in batches:                           # Spark expects that all rows are read
                pass
            return Written(query, None, replayed=True)
        limit, label = self.options.max_outbox_bytes, self._label(batch)
        self._await(lambda: self._has_room(label),
                    f"The outbox {self.options.path} is full (maxOutboxBytes={limit}), and got "
                    "no room")
        columns = (payloads(batch, meta) for batch in batches if batch.num_rows)
        first = next(columns, None)
        if first is None:
            return Written(query, None)
        if (task := TaskContext.get()) is not None:
            label += f"{task.partitionId()}."
        return Written(query, self.outbox.write_part(chain([first], columns), limit, label))

    def _label(self, batch: int) -> str:
        """Return the begin of the names of all parts of a batch."""
        return f"{self.id}-{batch}-"

    def _has_room(self, label: str) -> bool:
        """Return whether a task may write. Raise OutboxError if the other parts of its
        batch leave no room: they stay until the batch is sent, which has to be whole
        first."""
        limit = self.options.max_outbox_bytes
        if self.outbox.nbytes(label) >= limit:
            raise OutboxError(f"This batch is larger than the {limit} bytes that the outbox may "
                              "have: make batches smaller, or raise maxOutboxBytes.")
        return self.outbox.nbytes() < limit

    def _await_publisher(self) -> OutboxMeta:
        self._await(lambda: self.outbox.is_served() and self.outbox.ledger() is not None,
                    "Nothing can be sent")
        meta = self.outbox.meta()
        assert meta is not None                         # it is written before the first ledger
        return meta

    # -------------------------------------------------------------------- on the driver

    def commit_batch(self, messages: list[WriterCommitMessage | None], batch: int,
                     advice: str) -> None:
        """Add the batch to the outbox, and wait until every member has acknowledged it.
        Raises AckTimeoutError, with `advice`, when that takes too long."""
        written = [message for message in messages if isinstance(message, Written)]
        if not written:
            return
        query, replayed = written[0].query, any(message.replayed for message in written)
        parts = [message.part for message in written if message.part is not None]
        number: int | None = 0
        if replayed:
            number = self.outbox.find(query, batch)
        elif parts:
            number = self.outbox.commit(query, batch, parts)
        self.discard_unnamed(batch)
        self._await(lambda: not number or self.outbox.is_finished(number),
                    f"Batch {batch} was not acknowledged by every member",
                    f" The batch stays in the outbox; {advice}")

    def discard_unnamed(self, batch: int) -> None:
        """Discard the parts of a batch that is not in the outbox, or those of attempts
        that failed or were overtaken, lest they fill the outbox. The publisher removes
        what cannot be removed now, and what tasks write that end later, when nobody has
        written to it for --keep-parts seconds."""
        with suppress(OutboxError):
            self.outbox.discard_labeled(self._label(batch))

    # -------------------------------------------------------------------------- waiting

    def _await(self, condition: Callable[[], bool], what: str, advice: str = "") -> None:
        """Wait until the condition holds. Raises AckTimeoutError after ackTimeout."""
        deadline = time.monotonic() + self.options.ack_timeout
        while not condition():
            if time.monotonic() > deadline:
                raise AckTimeoutError(f"{what} within {self.options.ack_timeout:g} s: "
                                      f"{self._reason()}{advice}")
            time.sleep(POLL_INTERVAL)

    def _reason(self) -> str:
        """Return why the group gets nothing, and what the user can do."""
        path, meta, status = self.options.path, self.outbox.meta(), self.outbox.status()
        if not self.outbox.is_served():
            last = f" (the last one {status.state})" if status is not None else ""
            group = meta.group if meta is not None else "GROUP"
            return (f"no publisher runs on the outbox {path}{last}; start one: "
                    f"ringcast publish {path} --group {group} --expect RECORDER")
        if status is not None and status.waiting_for is not None:
            return (f"the publisher waits for the member {status.waiting_for} to acknowledge; "
                    "exclude it if it is dead, or send less.")
        state = status.state if status is not None else "has only started"
        return f"the publisher {state}; read its messages, and give it more time."


class BatchWriter(_Writer, DataSourceArrowWriter):
    """The writer of df.write."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(given, _BATCH_OPTIONS, schema, overwrite)
        self.query = None if self.options.app_id is None else APPLICATION + self.options.app_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.write_rows(self.query, self.options.version, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.commit_batch(messages, self.options.version, "do not write it again, it will be sent."
                          if self.query is None else
                          "written again with the same txnVersion it is not sent twice.")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.discard_unnamed(self.options.version)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer of df.writeStream."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(given, _STREAM_OPTIONS, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = TaskContext.get()
        assert task is not None
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        if not query or batch is None:
            raise ConfigError("Spark does not say which batch of which query this is; ringcast "
                              "needs pyspark from 4.2 on.")
        return self.write_rows(f"query {query}", int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.commit_batch(messages, batchId, "start the query again, and it is not sent twice.")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.discard_unnamed(batchId)


def check_schema(schema: StructType) -> None:
    """Raise ConfigError unless the rows have the one column that can be sent."""
    names = [field.name for field in schema]
    if names != ["payload"] or not isinstance(schema["payload"].dataType, (BinaryType, StringType)):
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
        raise ConfigError("ringcast sends one column, payload, binary or string; this has "
                          f"{columns or 'none'}: select what is to be sent, for example "
                          'df.selectExpr("to_json(struct(*)) AS payload").')


def payloads(batch: pa.RecordBatch, meta: OutboxMeta) -> pa.RecordBatch:
    """Return the rows as the outbox stores them. Raises for a payload that cannot be
    sent: ConfigError if it is null, MessageTooLargeError if it is too large."""
    column = batch.column(0)
    if column.null_count:
        raise ConfigError(f"{column.null_count} payloads are null, and a message cannot be: filter "
                          "them out, or coalesce them.")
    column = column.cast(pa.binary())
    largest = pc.max(pc.binary_length(column)).as_py()
    if largest > meta.max_message_size:
        raise MessageTooLargeError(f"A payload of {largest} bytes is larger than the group's "
                                   f"max_message_size, which is {meta.max_message_size}: split it, "
                                   "or give every member a larger limit.")
    return pa.RecordBatch.from_arrays([column], schema=PAYLOADS)
